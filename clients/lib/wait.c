/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How threads share a mount, and how they wait.
 *
 * A call of the face holds the mount's lock but while it spins, yields or sleeps. Whoever finds its
 * operation not done polls for all, so a thread may find that another has completed its operation.
 * A process with one thread takes no lock and executes no atomic instruction.
 *
 * Of the threads that want to sleep one is the *leader*: it sleeps in ppoll() on the context's
 * descriptor (armed) and on wake_fd. The others, *followers*, sleep on the futex of their own
 * operation. When a thread leaves the mount there must be someone who looks after the context on
 * behalf of those that stay: the leader, whose sleep must then be armed still or be ended, or else
 * a follower that is woken and becomes leader.
 *
 * A signal handler that calls while its own thread is inside gets -EDEADLK. While a thread sleeps
 * it is not inside, so handlers that interrupt a long wait may call.
 */
#include "clients/lib/core.h"

#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#define POLL_BUDGET         64u
#define STALE_NS            1000000u  /* older time than this is no base for deadlines */
#define FOLLOWER_NAP_NS     50000000u /* a follower looks for itself now and then */
#define LEADER_SLEEP_MAX_NS UINT64_C(1000000000)

static _Thread_local bool is_inside __attribute__((tls_model("initial-exec")));

int
client_begin(struct client_call *call, struct causeway *fs)
{
    if (BASE_UNLIKELY(is_inside)) {
        return -EDEADLK;
    }
    is_inside = true;
    call->fs = fs;
    call->is_locked = !__libc_single_threaded;
    if (call->is_locked) {
        (void)pthread_mutex_lock(&fs->mutex);
    }
    const uint64_t now_ns = base_clock_now_ns();

    /* Deadlines are counted from the context's time, and the program may have computed for long. */
    if (now_ns > fs->now_ns + STALE_NS) {
        (void)client_progress(fs);
    } else {
        fs->now_ns = base_max_u64(now_ns, fs->now_ns);
    }
    if (!base_list_empty(&fs->closers) && fs->now_ns > fs->closes_since_ns + CLIENT_CLOSES_NS) {
        client_closes_flush(fs);
    }
    return 0;
}

static void
futex_wake(uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void
leader_wake(struct causeway *fs)
{
    const uint64_t one = 1;

    (void)!write(fs->wake_fd, &one, sizeof(one));
}

/*
 * A leader is asleep, and we have polled since: has what it sleeps on armed again. False: there is
 * work to poll for, or a nearer deadline, which the leader was told.
 */
static bool
leader_is_watching(struct causeway *fs)
{
    if (lnet_arm(fs->ctx) == 0 && lnet_next_deadline(fs->ctx) >= fs->leader_until_ns) {
        return true;
    }
    leader_wake(fs);
    return false;
}

/* Somebody else has to look after the context now. */
static void
watch_hand_over(struct causeway *fs)
{
    if (fs->leader != NULL) {
        (void)leader_is_watching(fs);
    } else if (!base_list_empty(&fs->followers)) {
        struct client_op *op =
            BASE_CONTAINER_OF(base_list_first(&fs->followers), struct client_op, sleeper);

        base_list_unlink(&op->sleeper);
        __atomic_store_n(&op->word, CLIENT_RUNNING, __ATOMIC_RELEASE);
        futex_wake(&op->word);
    }
}

static void
lock_leave(struct client_call *call)
{
    if (call->is_locked) {
        watch_hand_over(call->fs);
        (void)pthread_mutex_unlock(&call->fs->mutex);
    }
    is_inside = false;
}

void
client_end(struct client_call *call)
{
    struct causeway *fs = call->fs;

    if (!base_list_empty(&fs->lenders)) {
        osc_release_flush(fs);
    }
    if (BASE_UNLIKELY(!base_list_empty(&fs->aios_done))) {
        (void)client_aio_deliver(call);
    }
    lock_leave(call);
}

uint32_t
client_progress(struct causeway *fs)
{
    fs->now_ns = base_max_u64(base_clock_now_ns(), fs->now_ns);
    const uint32_t count = lnet_poll(fs->ctx, fs->now_ns, POLL_BUDGET);

    if (BASE_UNLIKELY(!base_list_empty(&fs->starved)) && count > 0) {
        struct base_list starved;

        /* Those that starve again go to the end of the emptied list, in order. */
        base_list_init(&starved);
        base_list_move_all(&starved, &fs->starved);
        while (!base_list_empty(&starved)) {
            struct client_op *op =
                BASE_CONTAINER_OF(base_list_first(&starved), struct client_op, link);

            base_list_unlink(&op->link);
            op->start(op);
        }
    }
    return count;
}

void
client_op_init(struct client_op *op, struct causeway *fs, void (*start)(struct client_op *op))
{
    base_list_init(&op->link);
    base_list_init(&op->sleeper);
    op->fs = fs;
    op->start = start;
    op->done = NULL;
    op->status = 0;
    op->word = CLIENT_RUNNING;
}

void
client_op_complete(struct client_op *op, int status)
{
    struct causeway *fs = op->fs;

    BASE_ASSERT(op->word != CLIENT_DONE); /* I2 */
    op->status = status;
    if (op->word == CLIENT_RUNNING) {
        op->word = CLIENT_DONE;
    } else {
        base_list_unlink(&op->sleeper);
        __atomic_store_n(&op->word, CLIENT_DONE, __ATOMIC_RELEASE);
        futex_wake(&op->word);
    }
    if (op == fs->leader) {
        leader_wake(fs);
    }
    if (op->done != NULL) {
        op->done(op);
    }
}

/* The lock is held on entry and exit, and not while the thread sleeps. */
static void
sleep_as_follower(struct client_call *call, struct client_op *op)
{
    struct causeway *fs = call->fs;
    const struct timespec nap = {.tv_nsec = FOLLOWER_NAP_NS};

    op->word = CLIENT_SLEPT_ON;
    base_list_append(&fs->followers, &op->sleeper);
    (void)pthread_mutex_unlock(&fs->mutex);
    is_inside = false;
    (void)syscall(SYS_futex, &op->word, FUTEX_WAIT_PRIVATE, CLIENT_SLEPT_ON, &nap, NULL, 0);
    is_inside = true;
    (void)pthread_mutex_lock(&fs->mutex);
    base_list_unlink(&op->sleeper);
    if (op->word == CLIENT_SLEPT_ON) {
        op->word = CLIENT_RUNNING;
    }
}

static void
sleep_as_leader(struct client_call *call, struct client_op *op, uint64_t deadline_ns)
{
    struct causeway *fs = call->fs;
    struct pollfd fds[2] = {
        {.fd = fs->fd, .events = POLLIN},
        {.fd = fs->wake_fd, .events = POLLIN},
    };

    client_closes_flush(fs);
    deadline_ns = base_min_u64(deadline_ns, lnet_next_deadline(fs->ctx));
    deadline_ns = base_min_u64(deadline_ns, fs->now_ns + LEADER_SLEEP_MAX_NS);
    if (deadline_ns <= fs->now_ns || lnet_arm(fs->ctx) != 0) {
        return;
    }
    const uint64_t left_ns = deadline_ns - fs->now_ns;
    const struct timespec timeout = {
        .tv_sec = (time_t)(left_ns / 1000000000u),
        .tv_nsec = (long)(left_ns % 1000000000u),
    };
    int cancel_state = 0;

    fs->leader = op;
    fs->leader_until_ns = deadline_ns;
    if (call->is_locked) {
        (void)pthread_mutex_unlock(&fs->mutex);
    }
    /* A thread that is cancelled here would leave its operation behind. */
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    is_inside = false;
    (void)ppoll(fds, BASE_ARRAY_LEN(fds), &timeout, NULL);
    is_inside = true;
    (void)pthread_setcancelstate(cancel_state, &cancel_state);
    if (call->is_locked) {
        (void)pthread_mutex_lock(&fs->mutex);
    }
    fs->leader = NULL;
    if (fds[1].revents != 0) {
        uint64_t count = 0;

        (void)!read(fs->wake_fd, &count, sizeof(count));
    }
}

/* One step of a wait that found nothing. */
static void
wait_step(struct client_call *call, struct client_op *op, struct base_wait *wait,
          uint64_t deadline_ns)
{
    struct causeway *fs = call->fs;
    enum base_wait_phase phase;

    if (!call->is_locked) {
        phase = base_wait_turn(wait, fs->now_ns);
        if (phase == BASE_WAIT_SLEEP) {
            /* A signal handler's call may have found a leader asleep: it polls, and never sleeps.
             */
            if (fs->leader == NULL) {
                sleep_as_leader(call, op, deadline_ns);
            }
        }
        return;
    }
    const uint64_t now_ns = fs->now_ns;

    (void)pthread_mutex_unlock(&fs->mutex);
    phase = base_wait_turn(wait, now_ns);
    (void)pthread_mutex_lock(&fs->mutex);
    if (phase == BASE_WAIT_SLEEP && !client_op_is_done(op)) {
        if (fs->leader == NULL) {
            sleep_as_leader(call, op, deadline_ns);
        } else if (leader_is_watching(fs)) {
            sleep_as_follower(call, op);
        }
    }
}

int
client_wait_until(struct client_call *call, struct client_op *op, uint64_t deadline_ns)
{
    struct causeway *fs = call->fs;
    struct base_wait wait;
    bool is_waiting = false;

    while (!client_op_is_done(op)) {
        /* A timer is no event, and may be what ends the operation: look again before sleeping. */
        if (client_progress(fs) > 0 || client_op_is_done(op)) {
            continue;
        }
        if (fs->now_ns >= deadline_ns) {
            break;
        }
        if (!is_waiting) {
            is_waiting = true;
            wait = fs->wait;
            base_wait_begin(&wait, fs->now_ns);
        }
        wait_step(call, op, &wait, deadline_ns);
    }
    if (is_waiting) {
        base_wait_end(&wait, fs->now_ns);
        fs->wait = wait;
    }
    return client_op_is_done(op) ? op->status : -ETIMEDOUT;
}

int
client_wait(struct client_call *call, struct client_op *op)
{
    return client_wait_until(call, op, UINT64_MAX);
}

void
client_wait_background(struct client_call *call, uint32_t count_max, uint64_t deadline_ns)
{
    struct causeway *fs = call->fs;

    while (fs->background_count > count_max && fs->now_ns < deadline_ns) {
        struct client_op op;

        client_op_init(&op, fs, NULL);
        base_list_append(&fs->background_waiters, &op.link);
        (void)client_wait_until(call, &op, deadline_ns);
        base_list_unlink(&op.link);
    }
}
