/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mdtest workload: shape of the tree and names in it. See mdtest.h.
 *
 * Names are made for every operation that is measured, so the directory's part is kept from one to
 * the next, and numbers are written without printf.
 */
#include "tools/mdtest.h"

#include "base/assert.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DIRS_MAX  (UINT64_C(1) << 32)
#define ITEMS_MAX (UINT64_C(1) << 40)

/* The longest name of a directory in the tree, and of an item: prefix and two numbers. */
#define TREE_NAME_BYTES 48u
#define ITEM_NAME_BYTES 64u

int
md_shape_compute(const struct md_options *options, struct md_shape *shape_out)
{
    struct md_shape shape = {.dirs = 1};
    uint64_t level = 1;

    if (options->depth > MD_DEPTH_MAX ||
        strlen(options->path) + (options->depth + 2) * TREE_NAME_BYTES + ITEM_NAME_BYTES >=
            PATH_MAX) {
        return -EOVERFLOW;
    }
    for (uint64_t i = 0; i < options->depth; i++) {
        shape.first_dir = shape.dirs;
        level *= options->branching;
        shape.dirs += level;
        if (level > DIRS_MAX || shape.dirs > DIRS_MAX) {
            return -EOVERFLOW;
        }
    }
    if (!options->leaf_only) {
        shape.first_dir = 0;
    }
    const uint64_t used = shape.dirs - shape.first_dir;
    const uint64_t items = options->items != MD_UNSET ? options->items : 0;
    shape.per_dir = options->per_dir != MD_UNSET ? options->per_dir : items / used;
    if (shape.per_dir > ITEMS_MAX / shape.dirs) {
        return -EOVERFLOW;
    }
    shape.items = shape.per_dir * used;
    *shape_out = shape;
    return 0;
}

static size_t
append_text(char *path, size_t at, const char *text)
{
    const size_t bytes = strlen(text);

    BASE_ASSERT(at + bytes < PATH_MAX);
    memcpy(path + at, text, bytes); // NOLINT(bugprone-not-null-terminated-result): ended by callers
    return at + bytes;
}

static size_t
append_number(char *path, size_t at, uint64_t number)
{
    char digits[20];
    size_t count = 0;

    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    BASE_ASSERT(at + count < PATH_MAX);
    while (count > 0) {
        path[at++] = digits[--count];
    }
    return at;
}

void
md_namer_begin(struct md_namer *namer, const struct mdtest *md)
{
    namer->md = md;
    namer->dir_bytes = 0;
    namer->path[0] = '\0';
}

static size_t
append_top(struct md_namer *namer)
{
    size_t at = append_text(namer->path, 0, namer->md->options.path);

    at = append_text(namer->path, at, "/test-dir.");
    at = append_number(namer->path, at, namer->md->iteration);
    return append_text(namer->path, at, "-0");
}

const char *
md_name_top(struct md_namer *namer)
{
    namer->dir_bytes = 0;
    namer->path[append_top(namer)] = '\0';
    return namer->path;
}

const char *
md_name_dir(struct md_namer *namer, uint32_t owner, uint64_t dir)
{
    uint64_t way[MD_DEPTH_MAX + 1];
    size_t depth = 0;
    size_t at = append_top(namer);

    for (uint64_t up = dir;; up = (up - 1) / namer->md->options.branching) {
        BASE_ASSERT(depth < BASE_ARRAY_LEN(way));
        way[depth++] = up;
        if (up == 0) {
            break;
        }
    }
    while (depth > 0) {
        at = append_text(namer->path, at, "/mdtest_tree.");
        if (namer->md->options.unique) {
            at = append_number(namer->path, at, owner);
            at = append_text(namer->path, at, ".");
        }
        at = append_number(namer->path, at, way[--depth]);
    }
    namer->path[at] = '\0';
    namer->dir_bytes = at;
    namer->dir = dir;
    namer->owner = owner;
    return namer->path;
}

const char *
md_name_item(struct md_namer *namer, uint32_t owner, bool is_dir, uint64_t index,
             const char *suffix)
{
    const struct md_shape *shape = &namer->md->shape;
    const uint64_t dir = shape->first_dir + index / shape->per_dir;

    if (namer->dir_bytes == 0 || namer->dir != dir || namer->owner != owner) {
        (void)md_name_dir(namer, owner, dir);
    }
    size_t at =
        append_text(namer->path, namer->dir_bytes, is_dir ? "/dir.mdtest." : "/file.mdtest.");
    at = append_number(namer->path, at, owner);
    at = append_text(namer->path, at, ".");
    at = append_number(namer->path, at, shape->first_dir * shape->per_dir + index);
    at = append_text(namer->path, at, suffix);
    namer->path[at] = '\0';
    return namer->path;
}
