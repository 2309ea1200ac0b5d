/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MDS against a sequential specification of 150 lines.
 *
 * First one after another: random operations on few names must end as in the model, and the trees
 * must be the same. Then at the same time: a handful of operations are begun together, what the
 * cores say to each other is delivered in random order, and afterwards some order of the operations
 * must exist in which the model gives the same results and the same tree. 1, 2 and 4 reactors.
 */
#include "tests/servers/mds/rig.h"
#include "tests/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES    4u
#define NODES    250u
#define DEPTH    3u
#define AT_ONCE  5u
#define DUMP_MAX 32768u

/* ---- the specification ---- */

struct node {
    bool is_dir;
    bool is_used;   /* stays when the last name goes: a race may still mean it */
    uint32_t nlink; /* names */
    uint8_t parent;
    uint8_t names[NAMES]; /* of a directory: node, 0: none (0 is the root, which nobody names) */
};

struct model {
    struct node nodes[NODES];
};

struct path {
    uint32_t depth;
    uint8_t names[DEPTH];
};

enum kind { MKDIR, CREAT, OPEN, UNLINK, RMDIR, LINK, RENAME, STAT, KINDS };

struct action {
    enum kind kind;
    uint32_t flags; /* RENAME */
    struct path from;
    struct path to;
};

static void
model_init(struct model *model)
{
    (void)memset(model, 0, sizeof(*model));
    model->nodes[0].is_dir = true;
    model->nodes[0].nlink = 1;
}

static int
model_make(struct model *model, bool is_dir, uint8_t parent)
{
    for (uint32_t i = 1; i < NODES; i++) {
        if (!model->nodes[i].is_used) {
            model->nodes[i] =
                (struct node){.is_dir = is_dir, .is_used = true, .nlink = 1, .parent = parent};
            return (int)i;
        }
    }
    abort();
}

/* Forgets what has no names. Return: the number of nodes that are left. */
static uint32_t
model_tidy(struct model *model)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < NODES; i++) {
        model->nodes[i].is_used = model->nodes[i].nlink > 0;
        count += model->nodes[i].is_used ? 1 : 0;
    }
    return count;
}

/* The directory that holds the last name. */
static int
model_parent(const struct model *model, const struct path *path)
{
    uint8_t at = 0;

    for (uint32_t i = 0; i + 1 < path->depth; i++) {
        if (!model->nodes[at].is_dir) {
            return -ENOTDIR;
        }
        at = model->nodes[at].names[path->names[i]];
        if (at == 0) {
            return -ENOENT;
        }
    }
    return model->nodes[at].is_dir ? at : -ENOTDIR;
}

static bool
model_is_empty(const struct node *dir)
{
    for (uint32_t i = 0; i < NAMES; i++) {
        if (dir->names[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool
model_is_above(const struct model *model, uint8_t upper, uint8_t at)
{
    while (at != upper && at != 0) {
        at = model->nodes[at].parent;
    }
    return at == upper;
}

static int
model_rename(struct model *model, const struct action *action, uint8_t from_dir, uint8_t to_dir)
{
    uint8_t *from_name = &model->nodes[from_dir].names[action->from.names[action->from.depth - 1]];
    uint8_t *to_name = &model->nodes[to_dir].names[action->to.names[action->to.depth - 1]];
    const uint8_t from = *from_name;
    const uint8_t to = *to_name;
    const bool is_exchange = (action->flags & MDS_RENAME_EXCHANGE) != 0;

    if (from == 0) {
        return -ENOENT;
    }
    if ((action->flags & MDS_RENAME_NOREPLACE) != 0 && to != 0) {
        return -EEXIST;
    }
    if (is_exchange && to == 0) {
        return -ENOENT;
    }
    if (model->nodes[from].is_dir && model_is_above(model, from, to_dir)) {
        return -EINVAL;
    }
    if (to != 0 && model->nodes[to].is_dir && model_is_above(model, to, from_dir)) {
        return is_exchange ? -EINVAL : -ENOTEMPTY;
    }
    if (from == to) {
        return 0;
    }
    if (is_exchange) {
        *from_name = to;
        *to_name = from;
        model->nodes[from].parent = to_dir;
        model->nodes[to].parent = from_dir;
        return 0;
    }
    if (to != 0) {
        struct node *victim = &model->nodes[to];

        if (model->nodes[from].is_dir != victim->is_dir) {
            return victim->is_dir ? -EISDIR : -ENOTDIR;
        }
        if (victim->is_dir && !model_is_empty(victim)) {
            return -ENOTEMPTY;
        }
        victim->nlink--;
    }
    *from_name = 0;
    *to_name = from;
    model->nodes[from].parent = to_dir;
    return 0;
}

/* What is to get a name: the first half of LINK, which in Linux too is apart from the second. */
static int
model_link_source(const struct model *model, const struct action *action)
{
    const int dir = model_parent(model, &action->from);

    if (dir < 0) {
        return dir;
    }
    const uint8_t from = model->nodes[dir].names[action->from.names[action->from.depth - 1]];

    return from == 0 ? -ENOENT : from;
}

static int
model_link(struct model *model, const struct action *action, uint8_t from)
{
    const int dir = model_parent(model, &action->to);

    if (dir < 0) {
        return dir;
    }
    uint8_t *name = &model->nodes[dir].names[action->to.names[action->to.depth - 1]];

    if (*name != 0) {
        return -EEXIST;
    }
    if (model->nodes[from].is_dir) {
        return -EPERM;
    }
    if (model->nodes[from].nlink == 0) {
        return -ENOENT;
    }
    *name = from;
    model->nodes[from].nlink++;
    return 0;
}

static int
model_run(struct model *model, const struct action *action)
{
    const int dir = model_parent(model, &action->from);

    if (dir < 0) {
        return dir;
    }
    uint8_t *name = &model->nodes[dir].names[action->from.names[action->from.depth - 1]];
    struct node *node = &model->nodes[*name];

    switch (action->kind) {
    case MKDIR:
    case CREAT:
        if (*name != 0) {
            return -EEXIST;
        }
        *name = (uint8_t)model_make(model, action->kind == MKDIR, (uint8_t)dir);
        return 0;
    case OPEN:
        if (*name != 0) {
            return node->is_dir ? -EISDIR : 0;
        }
        *name = (uint8_t)model_make(model, false, (uint8_t)dir);
        return 0;
    case STAT:
        return *name == 0 ? -ENOENT : 0;
    case UNLINK:
    case RMDIR:
        if (*name == 0) {
            return -ENOENT;
        }
        if (node->is_dir != (action->kind == RMDIR)) {
            return node->is_dir ? -EISDIR : -ENOTDIR;
        }
        if (node->is_dir && !model_is_empty(node)) {
            return -ENOTEMPTY;
        }
        node->nlink--;
        *name = 0;
        return 0;
    case LINK: {
        const int from = model_link_source(model, action);

        return from < 0 ? from : model_link(model, action, (uint8_t)from);
    }
    case RENAME: {
        const int to_dir = model_parent(model, &action->to);

        return to_dir < 0 ? to_dir : model_rename(model, action, (uint8_t)dir, (uint8_t)to_dir);
    }
    case KINDS:
        break;
    }
    abort();
}

/* ---- trees as text: names in order, files by the number in which they were met ---- */

struct dump {
    char text[DUMP_MAX];
    size_t bytes;
    uint64_t met[NODES];
    uint32_t met_count;
};

static void
dump_line(struct dump *dump, const char *path, uint32_t nlink, uint64_t identity)
{
    uint32_t i = 0;

    while (i < dump->met_count && dump->met[i] != identity) {
        i++;
    }
    if (i == dump->met_count) {
        dump->met[dump->met_count++] = identity;
    }
    dump->bytes += (size_t)snprintf(dump->text + dump->bytes, DUMP_MAX - dump->bytes, "%s %u #%u\n",
                                    path, nlink, i);
}

static void
dump_model(struct dump *dump, const struct model *model, uint8_t at, const char *prefix)
{
    for (uint32_t i = 0; i < NAMES; i++) {
        const uint8_t child = model->nodes[at].names[i];
        char path[64];

        if (child == 0) {
            continue;
        }
        (void)snprintf(path, sizeof(path), "%s%c%s", prefix, (char)('a' + i),
                       model->nodes[child].is_dir ? "/" : "");
        dump_line(dump, path, model->nodes[child].is_dir ? 0 : model->nodes[child].nlink, child);
        if (model->nodes[child].is_dir) {
            dump_model(dump, model, child, path);
        }
    }
}

struct listing {
    struct fid fids[NAMES];
    bool is_there[NAMES];
};

static void
listing_add(const struct mds_dirent *entry, void *arg)
{
    struct listing *listing = arg;
    const char *name = (const char *)(entry + 1);

    if (name[0] != '.') {
        const uint32_t i = (uint32_t)(name[0] - 'a');

        assert_int_equal(entry->name_bytes, 1);
        assert_true(i < NAMES);
        assert_false(listing->is_there[i]);
        listing->is_there[i] = true;
        listing->fids[i] = entry->fid;
    }
}

static void
dump_rig(struct dump *dump, struct rig *rig, const struct fid *dir, const char *prefix)
{
    struct listing listing = {0};

    assert_int_equal(rig_readdir(rig, dir, 0, 0, 200, listing_add, &listing), 0);
    for (uint32_t i = 0; i < NAMES; i++) {
        char path[64];

        if (!listing.is_there[i]) {
            continue;
        }
        assert_int_equal(rig_stat_fid(rig, &listing.fids[i]), 0);
        const bool is_dir = S_ISDIR(rig->attr.mode);

        (void)snprintf(path, sizeof(path), "%s%c%s", prefix, (char)('a' + i), is_dir ? "/" : "");
        dump_line(dump, path, is_dir ? 0 : rig->attr.nlink,
                  listing.fids[i].seq << 32 ^ listing.fids[i].oid);
        if (is_dir) {
            dump_rig(dump, rig, &listing.fids[i], path);
        }
    }
}

static const char *
tree_of_rig(struct rig *rig)
{
    static struct dump dump;
    const struct fid root = FID_ROOT;

    dump.bytes = 0;
    dump.met_count = 0;
    dump.text[0] = 0;
    dump_rig(&dump, rig, &root, "");
    return dump.text;
}

static const char *
tree_of_model(const struct model *model)
{
    static struct dump dump;

    dump.bytes = 0;
    dump.met_count = 0;
    dump.text[0] = 0;
    dump_model(&dump, model, 0, "");
    return dump.text;
}

/* ---- operations ---- */

static void
path_draw(struct base_prng *prng, uint32_t depth_min, uint32_t depth_max, struct path *path)
{
    path->depth = (uint32_t)base_prng_between(prng, depth_min, depth_max);
    for (uint32_t i = 0; i < path->depth; i++) {
        path->names[i] = (uint8_t)base_prng_below(prng, NAMES);
    }
}

static void
action_draw(struct base_prng *prng, uint32_t depth_min, uint32_t depth_max, struct action *action)
{
    static const uint32_t flags[] = {0, 0, 0, MDS_RENAME_NOREPLACE, MDS_RENAME_EXCHANGE};

    action->kind = base_prng_chance(prng, 0.3) ? RENAME : (enum kind)base_prng_below(prng, KINDS);
    action->flags = flags[base_prng_below(prng, BASE_ARRAY_LEN(flags))];
    path_draw(prng, depth_min, depth_max, &action->from);
    path_draw(prng, depth_min, depth_max, &action->to);
}

static const char *
path_text(const struct path *path, char text[16])
{
    uint32_t bytes = 0;

    for (uint32_t i = 0; i < path->depth; i++) {
        if (i > 0) {
            text[bytes++] = '/';
        }
        text[bytes++] = (char)('a' + path->names[i]);
    }
    text[bytes] = 0;
    return text;
}

static void
action_begin(struct rig *rig, struct rig_task *task, const struct action *action)
{
    const struct mds_create_req mkdir_req = {.mode = S_IFDIR | 0755};
    const struct mds_create_req creat_req = {.mode = S_IFREG | 0644};
    const struct mds_open_req open_req = {.open_flags = MDS_OPEN_WRITE | MDS_OPEN_CREATE};
    const struct mds_unlink_req unlink_req = {0};
    const struct mds_unlink_req rmdir_req = {.head.flags = MDS_UNLINK_DIR};
    const struct mds_getattr_req stat_req = {0};
    const struct mds_rename_req link_req = {0};
    const struct mds_rename_req rename_req = {.head.flags = action->flags};
    const struct {
        uint16_t opc;
        const void *fixed;
        uint32_t bytes;
    } of[KINDS] = {
        [MKDIR] = {MDS_REINT_CREATE, &mkdir_req, sizeof(mkdir_req)},
        [CREAT] = {MDS_REINT_CREATE, &creat_req, sizeof(creat_req)},
        [OPEN] = {MDS_REINT_OPEN, &open_req, sizeof(open_req)},
        [UNLINK] = {MDS_REINT_UNLINK, &unlink_req, sizeof(unlink_req)},
        [RMDIR] = {MDS_REINT_UNLINK, &rmdir_req, sizeof(rmdir_req)},
        [STAT] = {MDS_GETATTR, &stat_req, sizeof(stat_req)},
        [LINK] = {MDS_REINT_LINK, &link_req, sizeof(link_req)},
        [RENAME] = {MDS_REINT_RENAME, &rename_req, sizeof(rename_req)},
    };
    char from[16];
    char to[16];

    rig_task_begin(rig, task, of[action->kind].opc, of[action->kind].fixed, of[action->kind].bytes,
                   NULL, path_text(&action->from, from), NULL, path_text(&action->to, to), NULL, 0);
}

/* Closes what OPEN opened, so that nothing piles up. */
static void
action_end(struct rig *rig, const struct rig_task *task, const struct action *action)
{
    const struct mds_open_rep *opened = &task->opened;

    if (action->kind == OPEN && task->status == 0) {
        assert_int_equal(rig_close_file(rig, &opened->attr.fid, opened->handle, 0), 0);
    }
}

static void
action_print(const struct action *action, int rc)
{
    static const char *const names[KINDS] = {"mkdir", "creat", "open",   "unlink",
                                             "rmdir", "link",  "rename", "stat"};
    char from[16];
    char to[16];

    print_error("  %s %s %s %x: %d\n", names[action->kind], path_text(&action->from, from),
                path_text(&action->to, to), action->flags, rc);
}

/* ---- one after another ---- */

static void
one_after_another(uint32_t reactors, bool is_slow, uint64_t seed, uint32_t count)
{
    static struct rig rig;
    static struct rig_task task;
    struct model model;
    struct base_prng prng;

    base_prng_seed(&prng, seed);
    rig = (struct rig){.osts = 2, .is_slow = is_slow};
    rig_open(&rig, reactors, seed);
    model_init(&model);
    for (uint32_t i = 0; i < count; i++) {
        struct action action;

        action_draw(&prng, 1, DEPTH, &action);
        if (model_tidy(&model) > NODES - 50 && action.kind != RENAME) {
            action.kind = base_prng_chance(&prng, 0.5) ? UNLINK : RMDIR;
        }
        const int expect = model_run(&model, &action);

        action_begin(&rig, &task, &action);
        while (!rig_task_step(&rig, &task)) {
            if (!rig_pump(&rig, 1)) {
                rig_time(&rig, 10000);
            }
        }
        action_end(&rig, &task, &action);
        if (task.status != expect) {
            print_error("seed %lu, %u reactors, step %u: model says %d\n", seed, reactors, i,
                        expect);
            action_print(&action, task.status);
        }
        assert_int_equal(task.status, expect);
        if (i % 64 == 0 || i + 1 == count) {
            while (rig_pump(&rig, 100)) {
            }
            rig_check(&rig);
            assert_string_equal(tree_of_rig(&rig), tree_of_model(&model));
        }
    }
    rig_close(&rig);
}

/* ---- at the same time ---- */

struct race {
    struct action actions[AT_ONCE];
    int results[AT_ONCE];
    uint32_t count;
    const char *tree;
};

/* How far an order has come: what is done, and what LINKs have found. */
struct order {
    struct model model;
    uint32_t done;
    uint8_t sources[AT_ONCE]; /* 0: not looked up yet */
};

/* Takes the next step of action @i. Return: whether it can be the next. */
static bool
order_step(const struct race *race, struct order *order, uint32_t i)
{
    const struct action *action = &race->actions[i];
    int result = 0;

    if ((order->done & 1u << i) != 0) {
        return false;
    }
    if (action->kind != LINK) {
        result = model_run(&order->model, action);
    } else if (order->sources[i] == 0) {
        result = model_link_source(&order->model, action);
        if (result > 0) {
            order->sources[i] = (uint8_t)result;
            return true;
        }
    } else {
        result = model_link(&order->model, action, order->sources[i]);
    }
    order->done |= 1u << i;
    return result == race->results[i];
}

/* Whether what is left of @race can follow in some order. */
static bool
race_explains(const struct race *race, const struct order *order, struct model *end_out)
{
    if (order->done == (1u << race->count) - 1) {
        *end_out = order->model;
        return strcmp(tree_of_model(&order->model), race->tree) == 0;
    }
    for (uint32_t i = 0; i < race->count; i++) {
        struct order next = *order;

        if (order_step(race, &next, i) && race_explains(race, &next, end_out)) {
            return true;
        }
    }
    return false;
}

static void
race_run(struct rig *rig, struct race *race, struct base_prng *prng)
{
    static struct rig_task tasks[AT_ONCE];
    uint32_t begun = 0;
    uint32_t ended = 0;
    uint32_t turns = 0;

    while (ended < race->count) {
        if (begun < race->count && base_prng_chance(prng, 0.5)) {
            action_begin(rig, &tasks[begun], &race->actions[begun]);
            begun++;
        }
        if (base_prng_chance(prng, 0.7)) {
            (void)rig_pump(rig, 1);
        } else if (rig->bag_count == 0) {
            rig_time(rig, 20000);
        }
        ended = 0;
        for (uint32_t i = 0; i < begun; i++) {
            ended += rig_task_step(rig, &tasks[i]) ? 1 : 0;
        }
        assert_true(++turns < 100000); /* else they wait for each other */
    }
    for (uint32_t i = 0; i < race->count; i++) {
        race->results[i] = tasks[i].status;
        action_end(rig, &tasks[i], &race->actions[i]);
    }
    while (rig_pump(rig, 100)) {
    }
}

static void
at_the_same_time(uint32_t reactors, bool is_slow, uint64_t seed, uint32_t rounds)
{
    static struct rig rig;
    struct model model;
    struct base_prng prng;

    base_prng_seed(&prng, seed);
    rig = (struct rig){.osts = 2, .is_slow = is_slow};
    rig_open(&rig, reactors, seed);
    model_init(&model);
    for (uint32_t i = 0; i < NAMES; i++) { /* directories that stay: paths through them hold */
        char name[2] = {(char)('a' + i), 0};
        const struct action mkdir = {.kind = MKDIR, .from = {.depth = 1, .names = {(uint8_t)i}}};

        assert_int_equal(rig_mkdir(&rig, name, 0755), 0);
        assert_int_equal(model_run(&model, &mkdir), 0);
    }
    for (uint32_t round = 0; round < rounds; round++) {
        struct race race = {.count = (uint32_t)base_prng_between(&prng, 2, AT_ONCE)};
        struct order begin = {.model = model};
        struct model end;

        (void)model_tidy(&begin.model);
        for (uint32_t i = 0; i < race.count; i++) {
            action_draw(&prng, 2, 2, &race.actions[i]);
        }
        race_run(&rig, &race, &prng);
        rig_check(&rig);
        race.tree = tree_of_rig(&rig);
        if (!race_explains(&race, &begin, &end)) {
            print_error("seed %lu, %u reactors, round %u: no order explains\n", seed, reactors,
                        round);
            for (uint32_t i = 0; i < race.count; i++) {
                action_print(&race.actions[i], race.results[i]);
            }
            print_error("before:\n%s", tree_of_model(&model));
            print_error("after:\n%s", race.tree);
            fail();
        }
        model = end;
    }
    rig_close(&rig);
}

static void
random_operations_end_as_in_the_model(void **state)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        one_after_another(1, false, seed, 3000);
        one_after_another(2, false, seed, 2000);
        one_after_another(4, false, seed, 2000);
    }
}

static void
some_order_explains_what_racing_operations_did(void **state)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        at_the_same_time(1, false, seed, 100);
        at_the_same_time(2, false, seed, 500);
        at_the_same_time(4, false, seed, 500);
    }
}

static void
a_store_that_answers_later_changes_nothing_of_that(void **state)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        one_after_another(1, true, seed, 1000);
        one_after_another(3, true, seed, 1000);
        at_the_same_time(1, true, seed, 200);
        at_the_same_time(3, true, seed, 200);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(random_operations_end_as_in_the_model),
    cmocka_unit_test(some_order_explains_what_racing_operations_did),
    cmocka_unit_test(a_store_that_answers_later_changes_nothing_of_that),
};

TEST_MAIN(cases)
