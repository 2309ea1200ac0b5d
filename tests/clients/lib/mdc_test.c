/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Property: the client goes on where the MDS says, splices symbolic links, and believes nothing.
 * Method: a fake MDS of two reactors in a thread, whose answers the case scripts.
 */
#include "tests/test.h"

#include "clients/lib/core.h"
#include "tests/support/reactor.h"
#include "tests/support/run_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- splicing ---- */

static int
absolute_below_mnt(void *arg, const char *target, char *path)
{
    if (strncmp(target, "/mnt/", 5) != 0) {
        return -EXDEV;
    }
    (void)strcpy(path, target + 4);
    return 0;
}

static int
splice(const char *link, const char *rest, causeway_absolute_fn absolute, char *path_out,
       bool *is_absolute_out)
{
    uint32_t bytes = 0;

    return mdc_splice(link, (uint32_t)strlen(link), rest, (uint32_t)strlen(rest), absolute, NULL,
                      path_out, &bytes, is_absolute_out);
}

static void
a_link_replaces_its_name(void **state)
{
    char path[CLIENT_PATH_ROOM];
    bool is_absolute = true;

    assert_int_equal(splice("a/b", "/c", NULL, path, &is_absolute), 0);
    assert_string_equal(path, "a/b/c");
    assert_false(is_absolute);
    assert_int_equal(splice("..", "", NULL, path, &is_absolute), 0);
    assert_string_equal(path, "..");
    assert_int_equal(splice("/x", "/y", NULL, path, &is_absolute), 0);
    assert_string_equal(path, "/x/y");
    assert_true(is_absolute);
    assert_int_equal(splice("", "/y", NULL, path, &is_absolute), -ENOENT);
}

static void
an_absolute_link_goes_where_the_caller_says(void **state)
{
    char path[CLIENT_PATH_ROOM];
    bool is_absolute = false;

    assert_int_equal(splice("/mnt/d", "/e", absolute_below_mnt, path, &is_absolute), 0);
    assert_string_equal(path, "/d/e");
    assert_true(is_absolute);
    assert_int_equal(splice("/etc", "/e", absolute_below_mnt, path, &is_absolute), -EXDEV);
}

static void
a_spliced_path_of_4096_bytes_is_too_long(void **state)
{
    char link[MDS_PATH_BYTES_MAX + 1];
    char path[CLIENT_PATH_ROOM];
    bool is_absolute = false;

    (void)memset(link, 'l', sizeof(link));
    link[4000] = '\0';
    char rest[97] = "/";

    (void)memset(rest + 1, 'r', 94);
    assert_int_equal(splice(link, rest, NULL, path, &is_absolute), 0);
    assert_int_equal(strlen(path), MDS_PATH_BYTES_MAX);
    rest[95] = 'r';
    assert_int_equal(splice(link, rest, NULL, path, &is_absolute), -ENAMETOOLONG);
}

/* ---- a scripted MDS ---- */

#define STEPS_MAX 64u

struct step {
    int status;
    uint16_t walk;
    uint16_t consumed;
    uint16_t which;
    const char *link;
    struct fid fid;
    uint32_t short_by; /* bytes that the reply lacks */
};

struct fake {
    uint32_t index;
    struct fake *first;
    /* of the first: */
    struct step steps[STEPS_MAX];
    uint32_t step_count;
    uint32_t seen;
    char paths[STEPS_MAX][128];
    struct fid bases[STEPS_MAX];
    uint32_t reactors[STEPS_MAX]; /* that got it */
    bool is_endless;
    struct mds_connect_ost osts[2]; /* named to who connects */
    uint32_t ost_count;
};

static void
fake_handle(struct ptlrpc_rq *rq)
{
    struct fake *reactor = ptlrpc_service_user(ptlrpc_rq_service(rq));
    struct fake *fake = reactor->first;
    uint32_t bytes = 0;
    const struct mds_rename_req *req = ptlrpc_rq_body(rq, &bytes);
    const bool is_rename = ptlrpc_rq_opc(rq) == MDS_REINT_RENAME;
    const uint32_t fixed = is_rename ? sizeof(*req) : sizeof(req->head);
    struct mds_getattr_rep *rep = ptlrpc_rq_reply_body(rq);
    const uint32_t at = fake->seen < STEPS_MAX ? fake->seen : STEPS_MAX - 1;
    const struct step *step = &fake->steps[fake->is_endless ? 0 : at];
    uint32_t reply_bytes = sizeof(*rep);

    fake->seen++;
    fake->reactors[at] = reactor->index;
    fake->bases[at] = req->head.base;
    (void)snprintf(fake->paths[at], sizeof(fake->paths[at]), "%.*s", (int)(bytes - fixed),
                   (const char *)req + fixed);
    *rep = (struct mds_getattr_rep){
        .head = {.fid = step->fid,
                 .walk = step->walk,
                 .consumed = step->consumed,
                 .which = step->which},
        .attr = {.fid = step->fid, .mode = S_IFREG | 0644, .nlink = 1},
    };
    if (step->link != NULL) {
        rep->head.link_bytes = (uint16_t)strlen(step->link);
        (void)memcpy(&rep->attr, step->link, strlen(step->link));
        reply_bytes = (uint32_t)(sizeof(rep->head) + strlen(step->link));
    } else if (step->walk != MDS_WALK_DONE) {
        reply_bytes = sizeof(rep->head);
    }
    ptlrpc_rq_reply(rq, step->status, step->status != 0 ? 0 : reply_bytes - step->short_by);
}

static int
fake_connected(struct ptlrpc_service *service, struct ptlrpc_export *export_, const void *data,
               uint32_t bytes, void *reply, uint32_t *reply_bytes)
{
    *(struct mds_connect_rep *)reply = (struct mds_connect_rep){
        .version = MDS_PROTO_VERSION,
        .reactors = 2,
        .root = FID_ROOT,
        .stripe_bytes = 1 << 20,
        .stripe_count = 1,
    };
    *reply_bytes = sizeof(struct mds_connect_rep);
    const struct fake *fake = ptlrpc_service_user(service);
    if (fake->ost_count > 0) {
        ((struct mds_connect_rep *)reply)->ost_count = fake->ost_count;
        (void)memcpy((char *)reply + *reply_bytes, fake->osts,
                     fake->ost_count * sizeof(fake->osts[0]));
        *reply_bytes += (uint32_t)(fake->ost_count * sizeof(fake->osts[0]));
    }
    return 0;
}

static int
fake_open(struct ptlrpc *rpc, void *arg)
{
    static const struct ptlrpc_op ops[] = {
        {MDS_GETATTR, 0, sizeof(struct mds_getattr_req), "mds_getattr", fake_handle},
        {MDS_REINT_RENAME, 0, sizeof(struct mds_rename_req), "mds_rename", fake_handle},
    };
    struct ptlrpc_service *service = NULL;
    const struct ptlrpc_service_options options = {
        .struct_bytes = sizeof(options),
        .portal = PTLRPC_PORTAL_MDS,
        .name = "mds",
        .ops = ops,
        .op_count = BASE_ARRAY_LEN(ops),
        .user = arg,
        .connected = fake_connected,
    };

    return ptlrpc_service_add(rpc, &options, &service);
}

struct bed {
    char run_dir[64];
    struct fake fakes[2];
    struct reactor *reactors[2];
    struct causeway *fs;
};

static int
bed_set_up(void **state)
{
    struct bed *bed = calloc(1, sizeof(*bed));

    run_dir_make(bed->run_dir);
    for (uint32_t i = 0; i < 2; i++) {
        bed->fakes[i].index = i;
        bed->fakes[i].first = &bed->fakes[0];
        const struct reactor_options options = {
            .run_dir = bed->run_dir,
            .address = "1",
            .pid = i,
            .open = fake_open,
            .arg = &bed->fakes[i],
        };

        if (reactor_start(&options, &bed->reactors[i]) != 0) {
            return -1;
        }
    }
    const struct causeway_options options = {
        .struct_bytes = sizeof(options),
        .mds = "1@shm",
        .run_dir = bed->run_dir,
    };

    *state = bed;
    return causeway_mount(&options, &bed->fs);
}

static int
bed_tear_down(void **state)
{
    struct bed *bed = *state;

    causeway_unmount(bed->fs);
    reactor_stop(bed->reactors[0]);
    reactor_stop(bed->reactors[1]);
    run_dir_remove(bed->run_dir);
    free(bed);
    return 0;
}

static struct fid
fid_of(uint64_t reactor, uint32_t oid)
{
    return (struct fid){.seq = FID_SEQ_FIRST + reactor, .oid = oid};
}

/* What the client makes of OSSs that overlap: it shares their targets, so they must be the same. */
static void
osts_of_an_oss_with_other_reactors_are_refused(void **state)
{
    static const struct mds_connect_ost pairs[][2] = {
        {{.nid = 7, .pid0 = 0, .reactors = 1}, {.nid = 7, .pid0 = 0, .reactors = 4, .ost = 1}},
        {{.nid = 7, .pid0 = 0, .reactors = 4}, {.nid = 7, .pid0 = 2, .reactors = 4, .ost = 1}},
        {{.nid = 7, .pid0 = 0, .reactors = 0}, {.nid = 8, .pid0 = 0, .reactors = 1}},
    };
    struct bed *bed = *state;
    const struct causeway_options options = {
        .struct_bytes = sizeof(options),
        .mds = "1@shm",
        .run_dir = bed->run_dir,
    };

    for (size_t i = 0; i < BASE_ARRAY_LEN(pairs); i++) {
        struct causeway *fs = NULL;

        (void)memcpy(bed->fakes[0].osts, pairs[i], sizeof(pairs[i]));
        bed->fakes[0].ost_count = 2;
        assert_int_equal(causeway_mount(&options, &fs), -EPROTO);
    }
    bed->fakes[0].osts[0] = (struct mds_connect_ost){.nid = 7, .pid0 = 0, .reactors = 1};
    bed->fakes[0].osts[1] = (struct mds_connect_ost){.nid = 7, .pid0 = 1, .reactors = 2};
    struct causeway *fs = NULL;
    assert_int_equal(causeway_mount(&options, &fs), 0);
    causeway_unmount(fs);
    bed->fakes[0].ost_count = 0;
}

static void
a_whole_path_goes_in_one_request_to_the_roots_owner(void **state)
{
    struct bed *bed = *state;
    struct fake *fake = &bed->fakes[0];
    struct stat st;

    fake->steps[0] = (struct step){.fid = fid_of(1, 9)};
    assert_int_equal(causeway_stat(bed->fs, NULL, "//a/b", 0, &st), 0);
    assert_int_equal(fake->seen, 1);
    assert_int_equal(fake->reactors[0], 0);
    assert_string_equal(fake->paths[0], "a/b");
    assert_int_equal(st.st_ino, (1ull << 32) + 9);
}

static void
moved_goes_on_at_the_new_owner_with_the_rest(void **state)
{
    struct bed *bed = *state;
    struct fake *fake = &bed->fakes[0];
    struct stat st;

    fake->steps[0] = (struct step){.walk = MDS_WALK_MOVED, .consumed = 3, .fid = fid_of(1, 5)};
    fake->steps[1] = (struct step){.walk = MDS_WALK_MOVED, .consumed = 1, .fid = fid_of(2, 6)};
    fake->steps[2] = (struct step){.fid = fid_of(0, 7)};
    assert_int_equal(causeway_stat(bed->fs, NULL, "dir/b//c", 0, &st), 0);
    assert_int_equal(fake->seen, 3);
    assert_int_equal(fake->reactors[1], 1);
    assert_string_equal(fake->paths[1], "b//c");
    assert_int_equal(fake->bases[1].oid, 5);
    assert_int_equal(fake->reactors[2], 0);
    assert_string_equal(fake->paths[2], "c");
}

static void
a_path_through_a_directory_that_is_gone_is_walked_again(void **state)
{
    struct bed *bed = *state;
    struct fake *fake = &bed->fakes[0];
    struct stat st;

    fake->steps[0] = (struct step){.walk = MDS_WALK_MOVED, .consumed = 2, .fid = fid_of(1, 5)};
    fake->steps[1] =
        (struct step){.walk = MDS_WALK_SYMLINK, .consumed = 1, .fid = fid_of(1, 5), .link = "z"};
    fake->steps[2] = (struct step){.status = -ESTALE};
    fake->steps[3] = (struct step){.fid = fid_of(0, 7)};
    assert_int_equal(causeway_stat(bed->fs, NULL, "d/l/x", 0, &st), 0);
    assert_int_equal(fake->seen, 4);
    assert_string_equal(fake->paths[2], "z/x");
    assert_string_equal(fake->paths[3], "d/l/x");
    assert_true(fid_equal(&fake->bases[3], &FID_ROOT));

    /* at the first request there is nothing to begin again */
    fake->steps[4] = (struct step){.status = -ESTALE};
    assert_int_equal(causeway_stat(bed->fs, NULL, "d", 0, &st), -ESTALE);
    assert_int_equal(fake->seen, 5);
}

static void
a_symlink_is_spliced_at_its_directory(void **state)
{
    struct bed *bed = *state;
    struct fake *fake = &bed->fakes[0];
    struct stat st;

    fake->steps[0] =
        (struct step){.walk = MDS_WALK_SYMLINK, .consumed = 6, .fid = fid_of(1, 3), .link = "../t"};
    fake->steps[1] =
        (struct step){.walk = MDS_WALK_SYMLINK, .consumed = 4, .fid = fid_of(1, 4), .link = "/u"};
    fake->steps[2] = (struct step){.fid = fid_of(0, 7)};
    assert_int_equal(causeway_stat(bed->fs, NULL, "d/link/x", 0, &st), 0);
    assert_string_equal(fake->paths[1], "../t/x");
    assert_int_equal(fake->reactors[1], 1);
    assert_int_equal(fake->bases[1].oid, 3);
    assert_string_equal(fake->paths[2], "u/x");
    assert_true(fid_equal(&fake->bases[2], &FID_ROOT));
}

static void
the_second_path_moves_by_itself(void **state)
{
    struct bed *bed = *state;
    struct fake *fake = &bed->fakes[0];

    fake->steps[0] =
        (struct step){.walk = MDS_WALK_MOVED, .which = 1, .consumed = 3, .fid = fid_of(1, 5)};
    fake->steps[1] = (struct step){.walk = MDS_WALK_MOVED, .consumed = 3, .fid = fid_of(1, 6)};
    fake->steps[2] = (struct step){0};
    assert_int_equal(causeway_rename(bed->fs, NULL, "one/a", NULL, "two/b", 0), 0);
    assert_string_equal(fake->paths[0], "one/atwo/b");
    assert_string_equal(fake->paths[1], "one/ab");
    assert_int_equal(fake->reactors[1], 0);
    assert_string_equal(fake->paths[2], "ab");
    assert_int_equal(fake->reactors[2], 1);
}

static void
forty_one_symlinks_are_a_loop(void **state)
{
    struct bed *bed = *state;
    struct fake *fake = &bed->fakes[0];
    struct stat st;

    fake->is_endless = true;
    fake->steps[0] =
        (struct step){.walk = MDS_WALK_SYMLINK, .consumed = 1, .fid = FID_ROOT, .link = "l"};
    assert_int_equal(causeway_stat(bed->fs, NULL, "l", 0, &st), -ELOOP);
    assert_int_equal(fake->seen, MDS_SYMLINKS_MAX + 1);
}

static void
a_walk_that_never_ends_is_a_broken_server(void **state)
{
    struct bed *bed = *state;
    struct fake *fake = &bed->fakes[0];
    struct stat st;

    fake->is_endless = true;
    fake->steps[0] = (struct step){.walk = MDS_WALK_MOVED, .consumed = 0, .fid = FID_ROOT};
    assert_int_equal(causeway_stat(bed->fs, NULL, "a/b", 0, &st), -EPROTO);
}

static void
replies_that_lie_are_refused(void **state)
{
    static const struct step lies[] = {
        {.walk = MDS_WALK_MOVED, .consumed = 4, .fid = {FID_SEQ_FIRST, 1, 0}}, /* path has 3 */
        {.walk = MDS_WALK_MOVED, .which = 1, .fid = {FID_SEQ_FIRST, 1, 0}},    /* has one path */
        {.walk = 3},
        {.short_by = 1},
        {.short_by = sizeof(struct mds_getattr_rep)},
        {.walk = MDS_WALK_SYMLINK, .link = "target", .short_by = 1},
        {.walk = MDS_WALK_MOVED, .short_by = 1},
    };
    struct bed *bed = *state;
    struct stat st;

    bed->fakes[0].is_endless = true;
    for (size_t i = 0; i < BASE_ARRAY_LEN(lies); i++) {
        bed->fakes[0].steps[0] = lies[i];
        assert_int_equal(causeway_stat(bed->fs, NULL, "a/b", 0, &st), -EPROTO);
    }
}

static void
errors_of_the_server_are_the_calls(void **state)
{
    struct bed *bed = *state;
    struct stat st;

    bed->fakes[0].steps[0] = (struct step){.status = -ENOENT};
    assert_int_equal(causeway_stat(bed->fs, NULL, "a/b", 0, &st), -ENOENT);
}

static void
paths_are_checked_before_anything_is_sent(void **state)
{
    struct bed *bed = *state;
    char path[MDS_PATH_BYTES_MAX + 2];
    struct stat st;

    (void)memset(path, 'x', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(causeway_stat(bed->fs, NULL, path, 0, &st), -ENAMETOOLONG);
    assert_int_equal(causeway_stat(bed->fs, NULL, NULL, 0, &st), -EFAULT);
    assert_int_equal(bed->fakes[0].seen, 0);
    path[sizeof(path) - 2] = '\0';
    bed->fakes[0].steps[0] = (struct step){.status = -ENAMETOOLONG};
    assert_int_equal(causeway_stat(bed->fs, NULL, path, 0, &st), -ENAMETOOLONG);
    assert_int_equal(bed->fakes[0].seen, 1);
}

#define BED_CASE(name) cmocka_unit_test_setup_teardown(name, bed_set_up, bed_tear_down)

static const struct CMUnitTest cases[] = {
    BED_CASE(osts_of_an_oss_with_other_reactors_are_refused),
    cmocka_unit_test(a_link_replaces_its_name),
    cmocka_unit_test(an_absolute_link_goes_where_the_caller_says),
    cmocka_unit_test(a_spliced_path_of_4096_bytes_is_too_long),
    BED_CASE(a_whole_path_goes_in_one_request_to_the_roots_owner),
    BED_CASE(moved_goes_on_at_the_new_owner_with_the_rest),
    BED_CASE(a_path_through_a_directory_that_is_gone_is_walked_again),
    BED_CASE(a_symlink_is_spliced_at_its_directory),
    BED_CASE(the_second_path_moves_by_itself),
    BED_CASE(forty_one_symlinks_are_a_loop),
    BED_CASE(a_walk_that_never_ends_is_a_broken_server),
    BED_CASE(replies_that_lie_are_refused),
    BED_CASE(errors_of_the_server_are_the_calls),
    BED_CASE(paths_are_checked_before_anything_is_sent),
};

TEST_MAIN(cases)
