"""What the two HTML pages share: one style sheet, escaping, the frame of a page.

A page is one file: no script, no font, no picture from elsewhere. Whatever an engine said is escaped
text. Colour never says anything alone.
"""
import html

from . import words

CSS = """
:root{--bg:#fbfbfa;--fg:#1d1f23;--dim:#5c626b;--line:#dcdee2;--card:#fff;--code:#f1f2f4;
--good:#116329;--goodbg:#dff3e4;--bad:#a40e26;--badbg:#fde4e4;--odd:#7a4100;--oddbg:#ffedd0;
--wait:#4a5160;--waitbg:#e8eaee;--mark:#ffd9d9;--markline:#a40e26;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--bg:#15171a;--fg:#e6e8eb;--dim:#a0a7b1;--line:#343940;
--card:#1c1f23;--code:#262a30;--good:#7ee2a0;--goodbg:#12351f;--bad:#ff9aa5;--badbg:#451820;
--odd:#ffc680;--oddbg:#42300f;--wait:#c3c9d3;--waitbg:#2b3038;--mark:#6b1f2a;--markline:#ff9aa5}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif;
overflow-wrap:anywhere}
main{max-width:62rem;margin:0 auto;padding:1rem}
main.wide{max-width:none}
h1{font-size:1.5rem;line-height:1.25;margin:.2rem 0}h2{font-size:1.2rem;margin:2rem 0 .5rem}
h3{font-size:1.05rem;margin:0 0 .3rem}p{margin:.4rem 0}a{color:inherit}
.verdict{border-left:.5rem solid var(--line);border-radius:.4rem;padding:.8rem 1rem;
background:var(--card)}
.verdict.good{border-color:var(--good);background:var(--goodbg)}
.verdict.bad{border-color:var(--bad);background:var(--badbg)}
.verdict.odd{border-color:var(--odd);background:var(--oddbg)}
.dim{color:var(--dim)}.small{font-size:.875rem}
code,pre{font:.875rem/1.45 ui-monospace,SFMono-Regular,Menlo,monospace;background:var(--code);
border-radius:.25rem}code{padding:.05rem .3rem}
pre{padding:.6rem .8rem;margin:.4rem 0;overflow-x:auto;white-space:pre-wrap}
.chip{display:inline-block;padding:0 .5rem;border-radius:.8rem;font-size:.8125rem;font-weight:600;
white-space:nowrap;color:var(--wait);background:var(--waitbg)}
.chip.good{color:var(--good);background:var(--goodbg)}
.chip.bad{color:var(--bad);background:var(--badbg)}
.chip.odd{color:var(--odd);background:var(--oddbg)}
table{border-collapse:collapse;width:100%;font-size:.9375rem}
th,td{text-align:left;padding:.35rem .5rem;border-bottom:1px solid var(--line);
vertical-align:top}th{font-weight:600;color:var(--dim)}td.n,th.n{text-align:right;
font-variant-numeric:tabular-nums;white-space:nowrap}
section.fail{background:var(--card);border:1px solid var(--line);border-radius:.5rem;
padding:1rem;margin:1rem 0}
dl{display:grid;grid-template-columns:7rem 1fr;gap:.25rem .75rem;margin:.6rem 0}
dt{color:var(--dim)}dd{margin:0}
.bits{display:flex;flex-wrap:wrap;gap:.5rem .6rem;margin:.4rem 0}
.bits>span{display:inline-block;font:.8125rem/1.35 ui-monospace,Menlo,monospace;white-space:pre}
.bits i{display:block;font:.6875rem/1.3 system-ui,sans-serif;color:var(--dim);min-height:.9rem}
.bits b{background:var(--mark);box-shadow:0 2px 0 var(--markline);font-weight:700}
figure{margin:.6rem 0}figcaption{font-size:.8125rem;color:var(--dim)}
svg.plot{display:block;width:100%;max-width:34rem;height:auto}
svg.plot text{font:9px system-ui,sans-serif;fill:var(--dim)}svg.plot .pt{fill:var(--good)}
.po{fill:var(--bad)}.pk{fill:var(--dim);opacity:.6}.pn{fill:var(--bad);opacity:.25}
.pa{stroke:var(--line)}.pl{stroke:var(--good);stroke-dasharray:4 3}.pf{fill:var(--fg)}
details{margin:.5rem 0}summary{cursor:pointer;color:var(--dim)}
.scroll{overflow-x:auto}
@media(max-width:40rem){main{padding:.6rem}h1{font-size:1.25rem}dl{grid-template-columns:1fr;
gap:0}dt{margin-top:.4rem;font-size:.8125rem}
table.tests thead{display:none}table.tests tr{display:flex;flex-wrap:wrap;gap:0 .5rem;
padding:.45rem 0;border-bottom:1px solid var(--line)}table.tests td{border:0;padding:0}
table.tests td:first-child{width:1.5rem}table.tests td:nth-child(2){flex:1 1 calc(100% - 9rem)}
table.tests td.extra{font-size:.8125rem;color:var(--dim)}
table.tests td.extra:nth-child(4){margin-left:2rem}
table.tests td.extra::before{content:attr(data-label) " "}}
@media print{body{background:#fff}section.fail{break-inside:avoid}}
"""
TONE = {"pass": "good", "blocked": "", "harness-error": "odd", "no-result": "odd",
        "timeout": "odd", "resource": "odd", "crash": "odd", "integrity": "odd"}


def e(text):
    """Text of anybody, safe in HTML in and out of attributes."""
    return html.escape(words.clean(text), quote=True)


def name(text):
    """A long name that may break after its underscores."""
    return e(text).replace("_", "_<wbr>")


def chip(cls):
    return f'<span class="chip {TONE.get(cls, "bad")}">{e(cls)}</span>'


def page(title, body, extra_css="", wide=False):
    # No script may run even if one came in: the page says so to the browser itself.
    return ("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            'style-src \'unsafe-inline\'">\n'
            f"<title>{e(title)}</title>\n<style>{CSS}{extra_css}</style>\n</head>\n<body>\n"
            f"<main{' class=wide' if wide else ''}>\n{body}\n</main>\n</body>\n</html>\n")
