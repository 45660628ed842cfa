"""A small picture of where a result is wrong: the error over the index, as inline SVG.

The judge keeps at most 64 numbers: the largest error of each stretch of the index. They are ratios
to what is allowed, distances in ulp, or the share that differs.
"""
import math

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 340, 130, 44, 10, 24
UNITS = {"allowed": "times what is allowed", "ulp": "ulp apart", "differs": "share that differs"}


def _label(value):
    return f"{value:.3g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")


class Scale:
    """From an error to a height. Logarithmic where the errors span more than two decades."""

    def __init__(self, values, unit):
        finite = [v for v in values if v and v > 0]
        self.high = max(finite, default=1.0)
        if unit == "allowed":
            self.high = max(self.high, 1.0) * 1.05
        low = min(finite, default=self.high)
        self.is_log = unit != "differs" and self.high / low > 100
        if unit == "allowed" and self.is_log:
            low = min(low, 1.0)
        self.low = low / 2 if self.is_log else 0.0
        self.high = self.high * 1.5 if self.is_log else self.high

    def share(self, value):
        if self.is_log:
            value = max(value, self.low)
            return math.log(value / self.low) / math.log(self.high / self.low)
        return value / self.high


def is_worth_it(profile):
    """Has it more to say than the first divergence?"""
    return (isinstance(profile, dict) and profile.get("unit") in UNITS
            and isinstance(profile.get("values"), list) and len(profile["values"]) >= 8
            and isinstance(profile.get("n"), int) and profile["n"] > 0
            and all(v is None or isinstance(v, (int, float)) for v in profile["values"]))


def _bars(values, unit, scale, bottom, step):
    for i, value in enumerate(values):
        x = LEFT + i * step
        if value is None:
            yield (f'<rect class="pn" x="{x:.1f}" y="{TOP}" width="{step * .8:.1f}" '
                   f'height="{bottom - TOP}"/>')
        elif value > 0:
            top = bottom - max(1.5, scale.share(value) * (bottom - TOP))
            over = unit != "allowed" or value > 1
            yield (f'<rect class="{"po" if over else "pk"}" x="{x:.1f}" y="{top:.1f}" '
                   f'width="{step * .8:.1f}" height="{bottom - top:.1f}"/>')


def draw(profile, first_index):
    """The picture; "" when there is too little to draw."""
    if not is_worth_it(profile):
        return ""
    values, n, unit = profile["values"], profile["n"], profile["unit"]
    scale, bottom = Scale(values, unit), HEIGHT - BOTTOM
    step = (WIDTH - LEFT - 4) / len(values)
    n_bad = sum(v is None or (v > 1 if unit == "allowed" else v > 0) for v in values)
    title = (f"error over the index: {n_bad} of {len(values)} stretches hold a value that is wrong")
    out = [f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">',
           f"<title>{title}</title>",
           f'<line class="pa" x1="{LEFT}" y1="{bottom}" x2="{WIDTH - 4}" y2="{bottom}"/>',
           *_bars(values, unit, scale, bottom, step),
           f'<text x="{LEFT - 4}" y="{TOP + 8}" text-anchor="end">{_label(scale.high)}</text>',
           f'<text x="{LEFT - 4}" y="{bottom}" text-anchor="end">{_label(scale.low)}</text>']
    if unit == "allowed":
        y = bottom - scale.share(1.0) * (bottom - TOP)
        out.append(f'<line class="pl" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - 4}" y2="{y:.1f}"/>')
        if TOP + 14 < y < bottom - 8:
            out.append(f'<text class="pt" x="{LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">1</text>')
    if isinstance(first_index, int) and 0 <= first_index < n:
        x = LEFT + (first_index / n) * (WIDTH - LEFT - 4)
        out.append(f'<path class="pf" d="M{x:.1f} {bottom + 2} l-4 7 h8 z"/>')
    out += [f'<text x="{LEFT}" y="{HEIGHT - 3}">0</text>',
            f'<text x="{WIDTH - 4}" y="{HEIGHT - 3}" text-anchor="end">index {n - 1}</text>',
            "</svg>"]
    note = UNITS[unit] + (", logarithmic" if scale.is_log else "")
    if any(v is None for v in values):
        note += "; a striped stretch holds a value that is not finite"
    return (f'<figure>{"".join(out)}<figcaption>Error over the index: {note}. The triangle is the '
            "first that differs.</figcaption></figure>")
