/* model_head.c: what the first bytes of a would-be safetensors file tell.
 *
 * They are judged before anything is mapped or read whole. The format has no magic number: any
 * file's first eight bytes are read as a length, so a refusal says what the file is where that
 * can be seen.
 *
 * Source: conformance/spec/safetensors.md, rules 1 to 3 and safetensors#foreign. */
#include "model_internal.h"

#include <string.h>

#include "util.h"

#define HEADER_MAX UINT64_C(100000000)

static bool starts_with(const uint8_t *head, size_t n, const char *magic, size_t n_magic) {
    return n >= n_magic && memcmp(head, magic, n_magic) == 0;
}

static bool is_html(const uint8_t *head, size_t n) {
    static const char *const openings[] = {"<!doctype", "<html", "<head", "<body"};
    while (n > 0 && (*head == ' ' || *head == '\t' || *head == '\r' || *head == '\n')) {
        head++;
        n--;
    }
    for (size_t i = 0; i < sizeof openings / sizeof openings[0]; i++) {
        const size_t n_opening = strlen(openings[i]);
        size_t n_same = 0;
        while (n_same < n_opening && n_same < n) {
            const uint8_t c = head[n_same];
            const uint8_t lower = c >= 'A' && c <= 'Z' ? (uint8_t)(c + ('a' - 'A')) : c;
            if (lower != (uint8_t)openings[i][n_same]) {
                break;
            }
            n_same++;
        }
        if (n_same == n_opening) {
            return true;
        }
    }
    return false;
}

/* What people often have in the place of a checkpoint, as the end of a sentence. The first bytes
 * alone refuse nothing: "PK\3\4" is a sound header length. */
static const char *foreign_kind(const uint8_t *head, size_t n, uint64_t n_bytes) {
    static const char zeros[TLI_HEAD_BYTES];
    if (n_bytes == 0) {
        return "; this is an empty file";
    }
    if (memcmp(head, zeros, n) == 0) {
        return "; this is an all-zero file (only zeros), as a failed upload leaves it";
    }
    if (starts_with(head, n, "version https://git-lfs", 23)) {
        return "; this is a Git LFS pointer, not the file that it stands for";
    }
    if (starts_with(head, n, "PK\3\4", 4) || starts_with(head, n, "PK\5\6", 4)) {
        return "; this is a ZIP archive, perhaps a PyTorch .bin";
    }
    if (starts_with(head, n, "GGUF", 4)) {
        return "; this is a GGUF file";
    }
    if (starts_with(head, n, "\0\5\26\7", 4)) {
        return "; this is an AppleDouble ._ file, which macOS leaves beside the real one";
    }
    return is_html(head, n) ? "; this is an HTML page, not a checkpoint" : "";
}

tl_status tli_layout_check_head(const uint8_t *head, size_t n_head, uint64_t n_bytes,
                                tl_error *err) {
    const char *foreign = foreign_kind(head, n_head, n_bytes);
    if (n_bytes < 8) {
        return tli_fail(err, TL_ERR_FORMAT,
                        "rule 1: %llu bytes, a safetensors file has at least 8%s",
                        (unsigned long long)n_bytes, foreign);
    }
    const uint64_t n_header = tli_load_u64(head);
    if (n_header > HEADER_MAX) {
        return tli_fail_at(err, TL_ERR_FORMAT, 0,
                           "rule 2: a header of %llu bytes, at most %llu are allowed%s",
                           (unsigned long long)n_header, (unsigned long long)HEADER_MAX, foreign);
    }
    /* Never 8 + n_header, which an outside number could wrap. */
    if (n_header > n_bytes - 8) {
        return tli_fail_at(
            err, TL_ERR_FORMAT, 0, "rule 2: a header of %llu bytes, but the file ends after %llu%s",
            (unsigned long long)n_header, (unsigned long long)(n_bytes - 8), foreign);
    }
    if (n_header == 0) {
        return tli_fail_at(err, TL_ERR_FORMAT, 8,
                           "rule 3: the header is empty, its first byte must be '{'%s", foreign);
    }
    if (n_head > 8 && head[8] != '{') {
        return tli_fail_at(err, TL_ERR_FORMAT, 8,
                           "rule 3: the header's first byte is 0x%02x, it must be '{'%s", head[8],
                           foreign);
    }
    return TL_OK;
}
