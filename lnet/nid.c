/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NIDs and process addresses as text, in Lustre's form: ADDRESS@NET, PID-ADDRESS@NET.
 *
 * There is one way to write each NID: no signs, blanks or leading zeros, and net number 0 is left
 * out. What format prints, parse reads back to the same value.
 */
#include "causeway/lnet.h"

#include "base/assert.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct net_name {
    const char *name;
    uint32_t type;
    bool is_ip;
} net_names[] = {
    {"tcp", LNET_LND_TCP, true},  {"lo", LNET_LND_LO, false},  {"shm", LNET_LND_SHM, false},
    {"sim", LNET_LND_SIM, false}, {"ucx", LNET_LND_UCX, true}, {"verbs", LNET_LND_VERBS, true},
    {"udp", LNET_LND_UDP, true},
};

/* Reads a decimal number of at most @max; moves *@at behind it. */
static int
number_parse(const char **at, uint64_t max, uint64_t *value_out)
{
    const char *text = *at;
    uint64_t value = 0;

    if (*text < '0' || *text > '9' || (text[0] == '0' && text[1] >= '0' && text[1] <= '9')) {
        return -EINVAL;
    }
    for (; *text >= '0' && *text <= '9'; text++) {
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > max) {
            return -EINVAL;
        }
    }
    *at = text;
    *value_out = value;
    return 0;
}

/* Reads "3" or "10.0.0.1"; moves *@at behind it. */
static int
address_parse(const char **at, bool *is_ip_out, uint32_t *address_out)
{
    uint64_t part = 0;

    if (number_parse(at, UINT32_MAX, &part) != 0) {
        return -EINVAL;
    }
    *is_ip_out = **at == '.';
    if (!*is_ip_out) {
        *address_out = (uint32_t)part;
        return 0;
    }
    uint64_t address = part;

    for (uint32_t i = 0; i < 3; i++) {
        if (part > 255 || **at != '.') {
            return -EINVAL;
        }
        (*at)++;
        if (number_parse(at, 255, &part) != 0) {
            return -EINVAL;
        }
        address = (address << 8) | part;
    }
    *address_out = (uint32_t)address;
    return 0;
}

int
lnet_nid_parse(const char *text, struct lnet_nid *nid_out)
{
    uint32_t address = 0;
    uint64_t net_number = 0;
    bool is_ip = false;

    if (address_parse(&text, &is_ip, &address) != 0 || *text++ != '@') {
        return -EINVAL;
    }
    for (size_t i = 0; i < BASE_ARRAY_LEN(net_names); i++) {
        const struct net_name *net = &net_names[i];
        const size_t length = strlen(net->name);

        if (strncmp(text, net->name, length) != 0 || net->is_ip != is_ip) {
            continue;
        }
        const char *rest = text + length;

        if (*rest == '0' || (*rest != '\0' && number_parse(&rest, UINT16_MAX, &net_number) != 0) ||
            *rest != '\0') {
            continue;
        }
        if (net->type == LNET_LND_LO && (address != 0 || net_number != 0)) {
            return -EINVAL;
        }
        nid_out->value = ((uint64_t)net->type << 48) | (net_number << 32) | address;
        return 0;
    }
    return -EINVAL;
}

const char *
lnet_nid_format(struct lnet_nid nid, char text[LNET_NID_TEXT_MAX])
{
    const uint32_t address = (uint32_t)nid.value;
    const uint32_t net_number = (uint32_t)(nid.value >> 32) & 0xffff;
    const uint32_t type = (uint32_t)(nid.value >> 48);
    const struct net_name *net = NULL;
    char net_text[8] = "";

    if (nid.value == LNET_NID_ANY) {
        (void)snprintf(text, LNET_NID_TEXT_MAX, "<?>");
        return text;
    }
    for (size_t i = 0; i < BASE_ARRAY_LEN(net_names); i++) {
        if (net_names[i].type == type) {
            net = &net_names[i];
        }
    }
    if (net_number != 0) {
        (void)snprintf(net_text, sizeof(net_text), "%u", net_number);
    }
    if (net == NULL) {
        (void)snprintf(text, LNET_NID_TEXT_MAX, "0x%x@<%u:%u>", address, type, net_number);
    } else if (net->is_ip) {
        (void)snprintf(text, LNET_NID_TEXT_MAX, "%u.%u.%u.%u@%s%s", address >> 24,
                       (address >> 16) & 0xff, (address >> 8) & 0xff, address & 0xff, net->name,
                       net_text);
    } else {
        (void)snprintf(text, LNET_NID_TEXT_MAX, "%u@%s%s", address, net->name, net_text);
    }
    return text;
}

int
lnet_process_parse(const char *text, struct lnet_process *process_out)
{
    struct lnet_process process = {.pid = 0};
    const char *dash = strchr(text, '-');

    if (dash != NULL) {
        uint64_t pid = 0;

        if (number_parse(&text, UINT32_MAX - 1, &pid) != 0 || text != dash) {
            return -EINVAL;
        }
        process.pid = (uint32_t)pid;
        text = dash + 1;
    }
    if (lnet_nid_parse(text, &process.nid) != 0) {
        return -EINVAL;
    }
    *process_out = process;
    return 0;
}

const char *
lnet_process_format(const struct lnet_process *process, char text[LNET_PROC_TEXT_MAX])
{
    char nid_text[LNET_NID_TEXT_MAX];

    if (process->pid == LNET_PID_ANY) {
        (void)snprintf(text, LNET_PROC_TEXT_MAX, "*-%s", lnet_nid_format(process->nid, nid_text));
    } else {
        (void)snprintf(text, LNET_PROC_TEXT_MAX, "%u-%s", process->pid,
                       lnet_nid_format(process->nid, nid_text));
    }
    return text;
}
