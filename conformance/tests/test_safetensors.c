/* test_safetensors.c: safetensors_reader_rules: every golden case, and drawn files read back.
 *
 * A case is opened as a file, as a directory, or loaded as a model, as its keys say; sound files
 * are then compared tensor by tensor. Costs no multiply-adds. */
#include "file_cases.h"
#include "model_maker.h"
#include "steps.h"
#include "tests.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ carrying a case out */

/* The files of a directory, or the one file of a case. */
static bool put_files(ol_test *t, const ol_case *c, const char *dir) {
    const char *node = ol_get_text_or(t, c, c->body, "node", NULL);
    json_t *files = json_object_get(c->body, "files");
    if (!ol_put_node(t, dir, "directory")) {
        return false;
    }
    if (files == NULL) {
        return file_put(t, c, ol_text(t, "%s/model.safetensors", dir),
                        json_object_get(c->body, "file"), node);
    }
    const char *about = ol_get_text_or(t, c, c->body, "node_of", "");
    bool made = true;
    const char *name = NULL;
    json_t *pieces = NULL;
    json_object_foreach(files, name, pieces) {
        const char *here = strcmp(name, about) == 0 ? node : NULL;
        made = made && file_put(t, c, ol_text(t, "%s/%s", dir, name), pieces, here);
    }
    if (node != NULL && json_object_get(files, about) == NULL) {
        made = made && ol_put_node(t, ol_text(t, "%s/%s", dir, about), node);
    }
    return made;
}

static const json_t *load_model(ol_test *t, const ol_case *c, const char *dir) {
    ol_put_pieces(t, c, ol_text(t, "%s/config.json", dir), json_object_get(c->body, "config"));
    step_cfg cfg = {.n_blocks = 2,
                    .max_batch_tokens = 8,
                    .int4_group = ol_get_count_or(t, c, c->body, "int4_group", 0)};
    step_runner r;
    const json_t *answer = step_load_try(t, dir, &cfg, &r);
    if (ol_ok(answer)) {
        step_free(t, &r);
    }
    return answer;
}

static const json_t *read_f32(ol_test *t, int64_t checkpoint, const char *name,
                              const json_t *shape) {
    json_t *dims = json_deep_copy(shape);
    return ol_call(t, "checkpoint_f32", "{s:I, s:s, s:o}", "checkpoint", (json_int_t)checkpoint,
                   "name", name, "shape", dims);
}

/* Read back every tensor whose values the case knows. */
static const json_t **read_values(ol_test *t, const ol_case *c, int64_t checkpoint) {
    const json_t *tensors = json_object_get(c->body, "tensors");
    size_t n = json_array_size(tensors);
    const json_t **values = ol_alloc(t, (n + 1) * sizeof(json_t *));
    for (size_t i = 0; i < n; i++) {
        const json_t *tensor = json_array_get(tensors, i);
        if (json_object_get(tensor, "f32") != NULL) {
            values[i] = read_f32(t, checkpoint, ol_get_text(t, c, tensor, "name"),
                                 ol_get_array(t, c, tensor, "shape"));
        }
    }
    return values;
}

static file_outcome run_case(ol_test *t, const ol_case *c, size_t number) {
    file_outcome o = {.left_out = false};
    const char *dir = ol_text(t, "case-%zu", number);
    if (!put_files(t, c, dir)) {
        o.left_out = true;
        return o;
    }
    if (json_object_get(c->body, "config") != NULL) {
        o.answer = load_model(t, c, dir);
        return o;
    }
    if (json_object_get(c->body, "files") != NULL) {
        o.opened = ol_call(t, "checkpoint_open", "{s:s}", "dir", dir);
    } else {
        o.opened = ol_call(t, "safetensors_open", "{s:s}", "path",
                           ol_text(t, "%s/model.safetensors", dir));
    }
    o.answer = o.opened;
    if (!ol_ok(o.opened)) {
        return o;
    }
    int64_t checkpoint = ol_int(t, o.opened, "checkpoint");
    const json_t *read = json_object_get(c->body, "read");
    if (read != NULL) {
        o.answer = read_f32(t, checkpoint, ol_get_text(t, c, read, "name"),
                            ol_get_array(t, c, read, "shape"));
    }
    o.values = read_values(t, c, checkpoint);
    (void)ol_call(t, "checkpoint_free", "{s:I}", "checkpoint", (json_int_t)checkpoint);
    return o;
}

/* ------------------------------------------------------------------ sound files */

/* A dimension is an integer, or from 2^53 on its decimal digits. */
static bool same_dim(const json_t *got, const json_t *want) {
    uint64_t value = (uint64_t)json_integer_value(want);
    if (json_is_string(got)) {
        return strtoull(json_string_value(got), NULL, 10) == value;
    }
    return json_is_integer(got) && (uint64_t)json_integer_value(got) == value;
}

static bool same_shape(const json_t *got, const json_t *want) {
    size_t n = json_array_size(want);
    bool same = json_is_array(got) && json_array_size(got) == n;
    for (size_t i = 0; i < n && same; i++) {
        same = same_dim(json_array_get(got, i), json_array_get(want, i));
    }
    return same;
}

static const json_t *find_tensor(const json_t *tensors, const char *name) {
    for (size_t i = 0; i < json_array_size(tensors); i++) {
        const json_t *tensor = json_array_get(tensors, i);
        const char *got = json_string_value(json_object_get(tensor, "name"));
        if (got != NULL && strcmp(got, name) == 0) {
            return tensor;
        }
    }
    return NULL;
}

static void look_at_values(ol_test *t, const char *check, const ol_case *c, const json_t *tensor,
                           const json_t *answer) {
    const char *dtype = ol_get_text(t, c, tensor, "dtype");
    const char *reads = strcmp(dtype, "F32") == 0   ? "reads_f32"
                        : strcmp(dtype, "F16") == 0 ? "reads_f16"
                                                    : "reads_bf16";
    const char *what = ol_text(t, "%s %s", dtype, ol_get_text(t, c, tensor, "name"));
    bool placed = strcmp(check, "offsets_from_data") == 0 || strcmp(check, "unaligned") == 0;
    if (!ol_check_ok(t, reads, answer, ol_text(t, "reading %s", what))) {
        return;
    }
    size_t n_want = 0;
    size_t n = 0;
    const float *want = ol_get_f32s(t, c, tensor, "f32", &n_want);
    const float *got = ol_res_f32s(t, answer, "values", &n);
    (void)ol_check_f32_bits(t, reads, got, n, want, n_want, what);
    if (placed) {
        (void)ol_check_f32_bits(t, check, got, n, want, n_want, what);
    }
}

/* The tensors of the file are those of the case, no more and no fewer. */
static void look(ol_test *t, const char *check, const file_outcome *o) {
    const ol_case *c = o->c;
    const json_t *wanted = json_object_get(c->body, "tensors");
    if (o->opened == NULL || wanted == NULL) {
        return;
    }
    const json_t *tensors = json_object_get(o->opened, "tensors");
    (void)ol_check_int(t, check, (int64_t)json_array_size(tensors),
                       (int64_t)json_array_size(wanted), "number of tensors");
    for (size_t i = 0; i < json_array_size(wanted); i++) {
        const json_t *want = json_array_get(wanted, i);
        const char *name = ol_get_text(t, c, want, "name");
        const json_t *got = find_tensor(tensors, name);
        const char *dtype = json_string_value(json_object_get(got, "dtype"));
        bool typed = dtype != NULL && strcmp(dtype, ol_get_text(t, c, want, "dtype")) == 0;
        bool shaped = same_shape(json_object_get(got, "shape"), json_object_get(want, "shape"));
        (void)ol_check(t, check, got != NULL && typed && shaped, "tensor \"%s\" is %s", name,
                       got == NULL ? "not listed" : "listed with another type or shape");
        if (o->values[i] != NULL) {
            look_at_values(t, check, c, want, o->values[i]);
        }
    }
}

/* ------------------------------------------------------------------ drawn files */

static void read_back(ol_test *t, const tm_model *m, int64_t checkpoint, const char *reads) {
    for (size_t i = 0; i < m->n_tensors; i++) {
        const tm_tensor *w = &m->tensors[i];
        json_t *shape = json_pack("[I]", (json_int_t)w->dims[0]);
        if (w->n_dims == 2) {
            (void)json_array_append_new(shape, json_integer((json_int_t)w->dims[1]));
        }
        const json_t *answer = ol_call(t, "checkpoint_f32", "{s:I, s:s, s:o}", "checkpoint",
                                       (json_int_t)checkpoint, "name", w->name, "shape", shape);
        if (ol_check_ok(t, reads, answer, w->name)) {
            size_t n = 0;
            size_t n_want = w->dims[0] * w->dims[1];
            const float *got = ol_res_f32s(t, answer, "values", &n);
            (void)ol_check_f32_bits(t, reads, got, n, w->values, n_want, w->name);
            (void)ol_check_f32_bits(t, "offsets_from_data", got, n, w->values, n_want, w->name);
        }
    }
}

/* Another shape than the file's is FORMAT, and says both; a name that is not there is NOT_FOUND. */
static void check_asked(ol_test *t, const tm_tensor *w, int64_t checkpoint, const char *reads) {
    const size_t *d = w->dims;
    const struct {
        json_t *shape;
        const char *what;
        size_t last; /* of the sizes asked for */
    } asked[] = {
        {json_pack("[I]", (json_int_t)d[0]), "one dimension", d[0]},
        {json_pack("[I, I]", (json_int_t)d[0], (json_int_t)d[1] + 1), "a column more", d[1] + 1},
        {json_pack("[I, I, i, i, i]", (json_int_t)d[0], (json_int_t)d[1], 1, 1, 1),
         "three dimensions more", 1},
    };
    for (size_t i = 0; i < TEST_COUNT(asked); i++) {
        const json_t *answer = read_f32(t, checkpoint, w->name, asked[i].shape);
        json_decref(asked[i].shape);
        (void)ol_check_refused(
            t, reads, answer, "FORMAT",
            ol_text(t, OL_TERMS("%s %zu %zu %zu"), w->name, d[0], d[1], asked[i].last), -1,
            ol_text(t, "%s, asked for with %s", w->name, asked[i].what));
    }
    json_t *shape = json_pack("[i]", 1);
    (void)ol_check_refused(t, reads, read_f32(t, checkpoint, "no_such", shape), "NOT_FOUND",
                           OL_TERMS("no_such"), -1, "a tensor that is not there");
    json_decref(shape);
}

/* Models of a drawn shape in each dtype, mapped and copied. */
static void part_drawn(ol_test *t) {
    static const struct {
        const char *dtype, *reads, *weights;
    } kinds[] = {{"F32", "reads_f32", "map"},
                 {"F16", "reads_f16", "copy"},
                 {"BF16", "reads_bf16", "map"},
                 {"F32", "reads_f32", "copy"}};
    for (size_t i = 0; i < TEST_COUNT(kinds); i++) {
        tm_shape shape = {.vocab = 3 + ol_rand_below(t, 9),
                          .hidden = 2 + ol_rand_below(t, 9),
                          .inter = 1 + ol_rand_below(t, 9),
                          .layers = 1,
                          .heads = 1,
                          .kv_heads = 1,
                          .head_dim = 2,
                          .positions = 8,
                          .tied = i % 2 == 0};
        const char *dir = ol_text(t, "drawn-%zu", i);
        tm_model *m = tm_draw(t, &shape, kinds[i].dtype);
        tm_put(t, m, dir);
        const json_t *answer =
            ol_call(t, "checkpoint_open", "{s:s, s:s}", "dir", dir, "weights", kinds[i].weights);
        if (!ol_check_ok(t, "offsets_from_data", answer, "a drawn model")) {
            continue;
        }
        int64_t checkpoint = ol_int(t, answer, "checkpoint");
        read_back(t, m, checkpoint, kinds[i].reads);
        /* The smallest there is: one layer, one head. */
        const step_cfg cfg = {.n_blocks = 2, .max_batch_tokens = 8};
        step_runner r;
        answer = step_load_try(t, dir, &cfg, &r);
        if (ol_check_ok(t, kinds[i].reads, answer, "a drawn model with one head, loaded")) {
            step_free(t, &r);
        }
        for (size_t at = 0; at < m->n_tensors; at++) {
            if (m->tensors[at].n_dims == 2) {
                check_asked(t, &m->tensors[at], checkpoint, kinds[i].reads);
                break;
            }
        }
        (void)ol_call(t, "checkpoint_free", "{s:I}", "checkpoint", (json_int_t)checkpoint);
    }
}

/* ------------------------------------------------------------------ nothing else is wrong */

/* A file of one tensor, with this name and entry and n_data bytes, at most 4. */
static const json_t *open_named(ol_test *t, const char *name, const char *entry, size_t n_data) {
    char *file = ol_text(t, "%8s{\"%s\":{%s}}%.*s", "", name, entry, (int)n_data, "data");
    size_t n = strlen(file);
    memset(file, 0, 8);
    file[0] = (char)(n - 8 - n_data); /* the header's length; all of them are short */
    ol_put_file(t, "entry.safetensors", (const uint8_t *)file, n);
    const json_t *answer = ol_call(t, "safetensors_open", "{s:s}", "path", "entry.safetensors");
    if (ol_ok(answer)) {
        (void)ol_call(t, "checkpoint_free", "{s:I}", "checkpoint",
                      (json_int_t)ol_int(t, answer, "checkpoint"));
    }
    return answer;
}

static const json_t *open_entry(ol_test *t, const char *entry, size_t n_data) {
    return open_named(t, "weight", entry, n_data);
}

/* One name, spelled in many ways. */
static void part_spellings(ol_test *t) {
    static const char entry[] = "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]";
    static const struct {
        const char *spelled, *name;
    } rows[] = {{"\\uD83D\\uDE00", "\xf0\x9f\x98\x80"},
                {"\\ud83d\\ude00", "\xf0\x9f\x98\x80"},
                {"\\ud83D\\uDe00", "\xf0\x9f\x98\x80"},
                {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
                {"\\uFFFD", "\xef\xbf\xbd"},
                {"\\u00E9", "\xc3\xa9"},
                {"\\u004E\\u004a", "NJ"},
                {"a\\/b\\\\\\\"", "a/b\\\""}};
    for (size_t i = 0; i < TEST_COUNT(rows); i++) {
        const json_t *answer = open_named(t, rows[i].spelled, entry, 0);
        const char *what = ol_text(t, "a tensor of the name \"%s\"", rows[i].spelled);
        if (ol_check_ok(t, "sound_twins", answer, what)) {
            const json_t *first = json_array_get(json_object_get(answer, "tensors"), 0);
            const char *name = json_string_value(json_object_get(first, "name"));
            (void)ol_check(t, "sound_twins", name != NULL && strcmp(name, rows[i].name) == 0,
                           "%s is read as \"%s\"", what, name == NULL ? "" : name);
        }
    }
}

/* Headers in which a lenient guess makes everything else fit: the tensor is empty, or is as long
 * as the guess says. */
static void part_lenient(ol_test *t) {
    static const struct {
        const char *check, *entry, *sound;
        size_t n_data;
    } rows[] = {
        {"known_dtypes", "\"dtype\":\"F33\",\"shape\":[0],\"data_offsets\":[0,0]",
         "\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]", 0},
        {"known_dtypes", "\"dtype\":\"B8\",\"shape\":[4],\"data_offsets\":[0,4]",
         "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]", 4},
        {"known_dtypes", "\"dtype\":\"f16\",\"shape\":[2],\"data_offsets\":[0,4]",
         "\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]", 4},
        {"entry_fields", "\"shape\":[0],\"data_offsets\":[0,0]",
         "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]", 0},
        {"entry_fields", "\"dtype\":\"U8\",\"data_offsets\":[0,1]",
         "\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]", 1},
        {"entry_fields", "\"dtype\":\"U8\",\"shape\":[0]",
         "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]", 0},
        {"entry_fields", "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0]",
         "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]", 0},
        {"entry_fields", "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0,0]",
         "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]", 0},
        {"integers", "\"dtype\":\"U8\",\"shape\":[0,-1],\"data_offsets\":[0,0]",
         "\"dtype\":\"U8\",\"shape\":[0,1],\"data_offsets\":[0,0]", 0},
        {"integers", "\"dtype\":\"U8\",\"shape\":[0.0],\"data_offsets\":[0,0]",
         "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]", 0},
        {"integers", "\"dtype\":\"U8\",\"shape\":[null],\"data_offsets\":[0,0]",
         "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]", 0},
        {"integers", "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0.0]",
         "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]", 0},
        {"integers", "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[\"0\",\"0\"]",
         "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]", 0},
    };
    for (size_t i = 0; i < TEST_COUNT(rows); i++) {
        const json_t *answer = open_entry(t, rows[i].entry, rows[i].n_data);
        (void)ol_check_refused(t, rows[i].check, answer, "FORMAT", NULL, -1, rows[i].entry);
        answer = open_entry(t, rows[i].sound, rows[i].n_data);
        (void)ol_check_ok(t, "sound_twins", answer, rows[i].sound);
    }
}

/* ------------------------------------------------------------------ the test */

static const char *fallback(ol_test *t, const ol_case *c) {
    static const char *const by_rule[] = {
        "sound_twins",      "regular_file",  "header_length", "header_bytes",  "header_json",
        "metadata_strings", "entry_fields",  "known_dtypes",  "shape_product", "tiling",
        "unaligned",        "read_refusals", "int4_tensors",  "shards"};
    uint64_t rule = ol_get_count_or(t, c, c->body, "rule", 0);
    return by_rule[rule < TEST_COUNT(by_rule) ? rule : 0];
}

static const char *subject_check(const char *check) {
    return strcmp(check, "foreign_files") == 0 ? "names_foreign_kind" : "names_subject";
}

void test_safetensors_reader_rules(ol_test *t) {
    static const char *const checks[] = {"regular_file",
                                         "header_length",
                                         "header_bytes",
                                         "header_json",
                                         "metadata_strings",
                                         "entry_fields",
                                         "integers",
                                         "known_dtypes",
                                         "shape_product",
                                         "tiling",
                                         "unaligned",
                                         "reads_f32",
                                         "reads_f16",
                                         "offsets_from_data",
                                         "reads_bf16",
                                         "read_refusals",
                                         "sound_twins",
                                         "foreign_files",
                                         "int4_tensors",
                                         "shards",
                                         NULL};
    static const file_suite suite = {.suite = "safetensors",
                                     .checks = checks,
                                     .fallback = fallback,
                                     .run = run_case,
                                     .look = look,
                                     .subject_check = subject_check,
                                     .offset_check = "fault_offset"};
    file_cases_run(t, &suite);
    if (ol_begin(t, "drawn")) {
        part_drawn(t);
    }
    if (ol_begin(t, "lenient-readers")) {
        part_lenient(t);
        part_spellings(t);
    }
    test_c_arguments(t, "files");
}
