/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the servers keep their state in: the metadata store and the object store.
 *
 * A target chooses its store by name: "mem" keeps all in memory for the life of the process, "null"
 * validates requests and keeps nothing. A store sees base/ and these headers, nothing of its
 * server.
 */
#pragma once

#include "servers/store_mdt.h"
#include "servers/store_ost.h"
