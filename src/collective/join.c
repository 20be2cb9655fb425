/* SPDX-License-Identifier: Apache-2.0 */
/* The three ways to find each other; see join.h. */
#include "collective/join.h"

#include "base/hash.h"
#include "base/status.h"
#include "transport/interface.h"
#include "transport/rendezvous.h"
#include "transport/socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define POLL_MS 20
#define ID_MAGIC 0x3164696772697277u /* "wrirgid1" */

/* What a unique id holds. */
struct id {
    uint64_t magic, job;
    int32_t port;
    char host[108];
};
_Static_assert(sizeof(struct id) <= sizeof(wring_unique_id), "a unique id holds host and port");

static wring_status draw(uint64_t *out)
{
    if (getrandom(out, sizeof(*out), 0) != sizeof(*out))
        WRI_FAIL(WRING_E_SYSTEM, "no random numbers from the system");
    return WRING_OK;
}

/* Equal for ranks that reach each other on loopback: same machine, same network namespace. */
static uint64_t host_hash(void)
{
    char text[512] = {0};
    gethostname(text, 255);
    FILE *boot = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (boot != NULL) {
        size_t used = strlen(text);
        size_t got = fread(text + used, 1, sizeof(text) - used - 1, boot);
        text[used + got] = '\0';
        fclose(boot);
    }
    size_t used = strlen(text);
    ssize_t got = readlink("/proc/self/ns/net", text + used, sizeof(text) - used - 1);
    text[used + (got > 0 ? (size_t)got : 0)] = '\0';
    return wri_hash(text, strlen(text), 0);
}

wring_status wri_way_host(wring_context *context, const struct wri_way *way, char *host)
{
    const char *interface = context->config.interface;
    if (way->host[0] != '\0' && interface[0] == '\0')
        return wri_interface_towards(way->host, way->port, host, WRI_CARD_HOST_MAX);
    return wri_interface_address(interface, host, WRI_CARD_HOST_MAX);
}

wring_status wri_card_init(struct wri_card *card)
{
    char name[WRI_CARD_NAME_MAX - 12] = "";
    gethostname(name, sizeof(name) - 1);
    snprintf(card->name, sizeof(card->name), "%s:%d", name, (int)getpid());
    card->host = host_hash();
    return draw(&card->nonce);
}

void wri_card_refuse(struct wri_card *card, wring_status status)
{
    size_t nbytes = strnlen(wring_error_message(), sizeof(card->address));
    *card = (struct wri_card){.status = status, .address_nbytes = (uint32_t)nbytes};
    memcpy(card->address, wring_error_message(), nbytes);
}

/* Rank 0 listens where WRING_ROOT says, else on loopback: nothing is bound that nobody asked
 * for. */
wring_status wri_unique_id_create(wring_context *context, wring_unique_id *id_out)
{
    struct id id = {.magic = ID_MAGIC};
    struct wri_launch root = {.host = "127.0.0.1"};
    if (context->config.root[0] != '\0')
        WRI_TRY(wri_launch_root(context->config.root, &root));
    size_t length = strlen(root.host);
    if (length >= sizeof(id.host))
        WRI_FAIL(WRING_E_CONFIG, "WRING_ROOT=%s: a unique id holds a host of up to %zu characters",
                 context->config.root, sizeof(id.host) - 1);
    memcpy(id.host, root.host, length);
    int port = 0, fd;
    struct wri_secret secret;
    WRI_TRY(draw(&id.job));
    WRI_TRY(wri_secret_load(&context->config, &secret));
    WRI_TRY(wri_secret_permits_host(&secret, id.host));
    WRI_TRY(wri_socket_listen(id.host, &port, &fd));
    if (context->listen_fd >= 0)
        close(context->listen_fd);
    context->listen_fd = fd;
    context->listen_port = id.port = port;
    memset(id_out, 0, sizeof(*id_out));
    memcpy(id_out, &id, sizeof(id));
    return WRING_OK;
}

static wring_status way_by_id(wring_context *context, const wring_unique_id *unique,
                              struct wri_way *way)
{
    struct id id;
    memcpy(&id, unique, sizeof(id));
    if (id.magic != ID_MAGIC || memchr(id.host, '\0', sizeof(id.host)) == NULL || id.port <= 0)
        WRI_FAIL(WRING_E_ARGUMENT, "the unique id was not made by wring_unique_id_create");
    snprintf(way->host, sizeof(way->host), "%s", id.host);
    way->port = id.port;
    way->job = id.job;
    if (way->rank != 0)
        return WRING_OK;
    if (context->listen_fd < 0 || context->listen_port != id.port)
        WRI_FAIL(WRING_E_ARGUMENT, "rank 0 must use the context that made the unique id");
    way->listen_fd = context->listen_fd;
    context->listen_fd = -1;
    return WRING_OK;
}

static wring_status way_by_environment(wring_context *context, const wring_comm_options *options,
                                       struct wri_way *way)
{
    struct wri_launch launch;
    WRI_TRY(wri_launch_detect(&context->config, &launch));
    if (options->nranks > 0 && (launch.nranks != options->nranks || launch.rank != options->rank)) {
        if (launch.listen_fd >= 0)
            close(launch.listen_fd);
        WRI_FAIL(WRING_E_CONFIG, "asked for rank %d of %d, but %s says rank %d of %d",
                 options->rank, options->nranks, launch.launcher, launch.rank, launch.nranks);
    }
    way->rank = launch.rank;
    way->nranks = launch.nranks;
    way->port = launch.port;
    way->job = launch.job;
    snprintf(way->host, sizeof(way->host), "%s", launch.host);
    way->listen_fd = launch.listen_fd;
    return WRING_OK;
}

wring_status wri_way_find(wring_context *context, const wring_comm_options *options,
                          struct wri_way *way_out)
{
    struct wri_way way = {.rank = options->rank,
                          .nranks = options->nranks,
                          .listen_fd = -1,
                          .allgather = options->allgather,
                          .allgather_arg = options->allgather_arg};
    if (options->allgather == NULL && options->id == NULL)
        WRI_TRY(way_by_environment(context, options, &way));
    if (way.nranks < 1 || way.rank < 0 || way.rank >= way.nranks)
        WRI_FAIL(WRING_E_ARGUMENT, "rank %d of %d ranks", way.rank, way.nranks);
    if (options->allgather == NULL && options->id != NULL)
        WRI_TRY(way_by_id(context, options->id, &way));
    *way_out = way;
    return WRING_OK;
}

static wring_status join_by_rendezvous(wring_context *context, const struct wri_way *way,
                                       const struct wri_card *own, struct wri_card *cards_out,
                                       uint64_t *nonce_out)
{
    struct wri_rendezvous *rendezvous;
    struct wri_rendezvous_options options = {
        .host = way->host,
        .port = way->port,
        .listen_fd = way->listen_fd,
        .job = way->job,
        .rank = way->rank,
        .nranks = way->nranks,
        .timeout_ms = (int)context->config.join_timeout_ms,
    };
    wring_status status = wri_secret_load(&context->config, &options.secret);
    if (status != WRING_OK && way->listen_fd >= 0)
        close(way->listen_fd);
    WRI_TRY(status);
    WRI_TRY(wri_rendezvous_open(&options, own, sizeof(*own), &rendezvous));
    do
        status = wri_rendezvous_poll(rendezvous, POLL_MS);
    while (status == WRING_AGAIN);
    for (int q = 0; status == WRING_OK && q < way->nranks; q++) {
        size_t nbytes;
        const void *blob = wri_rendezvous_blob(rendezvous, q, &nbytes);
        if (nbytes == sizeof(*cards_out))
            memcpy(&cards_out[q], blob, nbytes);
        else
            status = wri_fail(WRING_E_MISMATCH, "rank %d runs another version of wring", q);
    }
    if (status == WRING_OK)
        *nonce_out = wri_rendezvous_nonce(rendezvous);
    wri_rendezvous_close(rendezvous);
    return status;
}

wring_status wri_card_check(const struct wri_card *card, int rank)
{
    uint32_t status = card->status;
    if (card->address_nbytes > sizeof(card->address))
        WRI_FAIL(WRING_E_CORRUPT, "rank %d sent an address of %u bytes", rank,
                 card->address_nbytes);
    if (status == WRING_OK)
        return WRING_OK;
    if (status <= WRING_AGAIN || status > WRING_E_INTERNAL)
        WRI_FAIL(WRING_E_CORRUPT, "rank %d sent a status of %u", rank, status);
    WRI_FAIL((wring_status)status, "rank %d: %.*s", rank, (int)card->address_nbytes,
             (const char *)card->address);
}

wring_status wri_join(wring_context *context, const struct wri_way *way, const struct wri_card *own,
                      struct wri_card *cards_out, uint64_t *nonce_out)
{
    if (way->nranks == 1) {
        cards_out[0] = *own;
        *nonce_out = own->nonce;
    } else if (way->allgather == NULL) {
        WRI_TRY(join_by_rendezvous(context, way, own, cards_out, nonce_out));
    } else {
        if (way->allgather(way->allgather_arg, own, cards_out, sizeof(*own)) != 0)
            WRI_FAIL(WRING_E_SYSTEM, "the caller's allgather failed");
        *nonce_out = cards_out[0].nonce;
    }
    for (int q = 0; q < way->nranks; q++)
        WRI_TRY(wri_card_check(&cards_out[q], q));
    return WRING_OK;
}
