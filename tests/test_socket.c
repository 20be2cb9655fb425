/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets that never block: transfers in pieces of any size, ends told apart, addresses named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include "refuse.h"
#include "transport/socket.h"

#define NBYTES ((size_t)1 << 20) /* more than the buffers of a connection hold */

/* Two ends of a connection to HOST. */
static void join(const char *host, int *listen_fd, int fds[2], int *port)
{
    struct addrinfo *addresses = NULL;
    *port = 0;
    assert_int_equal(wri_socket_listen(host, port, listen_fd), WRING_OK);
    assert_int_equal(wri_socket_accept(*listen_fd), -1);
    assert_int_equal(wri_socket_resolve(host, *port, &addresses), WRING_OK);
    fds[0] = wri_socket_connect(addresses);
    freeaddrinfo(addresses);
    assert_true(fds[0] >= 0);
    struct pollfd knock = {.fd = *listen_fd, .events = POLLIN};
    assert_int_equal(poll(&knock, 1, 1000), 1);
    fds[1] = wri_socket_accept(*listen_fd);
    assert_true(fds[1] >= 0);
}

static void leave(int listen_fd, const int fds[2])
{
    close(listen_fd);
    close(fds[0]);
    close(fds[1]);
}

static void transfers_continue_where_they_stopped(void **state)
{
    static unsigned char out[NBYTES], in[NBYTES];
    int listen_fd, fds[2], port, turns = 0;
    size_t sent = 0, received = 0;
    wring_status send_status = WRING_AGAIN, recv_status = WRING_AGAIN;
    (void)state;
    for (size_t i = 0; i < NBYTES; i++)
        out[i] = (unsigned char)(i * 7 + i / 251);
    join("127.0.0.1", &listen_fd, fds, &port);
    assert_int_equal(wri_socket_recv(fds[1], in, NBYTES, &received), WRING_AGAIN);
    for (; recv_status == WRING_AGAIN; turns++) {
        if (send_status == WRING_AGAIN)
            send_status = wri_socket_send(fds[0], out, NBYTES, &sent);
        recv_status = wri_socket_recv(fds[1], in, NBYTES, &received);
    }
    assert_int_equal(send_status, WRING_OK);
    assert_int_equal(recv_status, WRING_OK);
    assert_int_equal(sent, 0);
    assert_int_equal(received, 0);
    assert_memory_equal(in, out, NBYTES);
    assert_int_equal(wri_socket_recv(fds[1], in, 0, &received), WRING_OK);
    leave(listen_fd, fds);
}

static void a_closed_end_is_told_from_an_error(void **state)
{
    int listen_fd, fds[2], port;
    size_t done = 0;
    char byte;
    (void)state;
    join("127.0.0.1", &listen_fd, fds, &port);
    shutdown(fds[0], SHUT_WR);
    errno = EINVAL;
    assert_int_equal(wri_socket_recv(fds[1], &byte, 1, &done), WRING_E_SYSTEM);
    assert_int_equal(errno, 0);
    shutdown(fds[1], SHUT_WR);
    assert_int_equal(wri_socket_send(fds[1], "x", 1, &done), WRING_E_SYSTEM); /* and no SIGPIPE */
    assert_int_equal(errno, EPIPE);
    leave(listen_fd, fds);
}

static void the_other_side_is_named(void **state)
{
    static const struct {
        const char *host, *form;
    } rows[] = {{"127.0.0.1", "127.0.0.1:%d"}, {"::1", "[::1]:%d"}};
    char text[WRI_SOCKET_NAME_MAX], expected[WRI_SOCKET_NAME_MAX];
    int listen_fd, fds[2], port;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        join(rows[i].host, &listen_fd, fds, &port);
        snprintf(expected, sizeof expected, rows[i].form, port);
        assert_string_equal(wri_socket_peer(fds[0], text), expected);
        assert_string_equal(wri_socket_peer(listen_fd, text), "unknown");
        leave(listen_fd, fds);
    }
}

static void a_refused_connection_shows_in_the_transfer(void **state)
{
    struct addrinfo *addresses = NULL;
    int port = 0, fd = -1;
    size_t done = 0;
    (void)state;
    assert_int_equal(wri_socket_listen("127.0.0.1", &port, &fd), WRING_OK);
    close(fd);
    assert_int_equal(wri_socket_resolve("127.0.0.1", port, &addresses), WRING_OK);
    fd = wri_socket_connect(addresses);
    freeaddrinfo(addresses);
    if (fd >= 0) {
        struct pollfd event = {.fd = fd, .events = POLLOUT};
        assert_int_equal(poll(&event, 1, 1000), 1);
        assert_int_equal(wri_socket_send(fd, "x", 1, &done), WRING_E_SYSTEM);
        close(fd);
    }
    assert_int_equal(errno, ECONNREFUSED);
}

static void loopback_is_told_from_the_rest(void **state)
{
    static const struct {
        const char *host;
        bool loopback;
    } rows[] = {{"127.0.0.1", true},
                {"::1", true},
                {"localhost", true},
                {"::ffff:127.0.0.1", true},
                {"::ffff:10.0.0.1", false},
                {"::ffff:0:127.0.0.1", false},
                {"::2", false},
                {"::127.0.0.1", false},
                {"0.0.0.0", false},
                {"10.0.0.1", false},
                {"no.such.host.invalid", false}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(wri_socket_is_loopback(rows[i].host), rows[i].loopback);
}

static void of_several_addresses_all_must_be_loopback(void **state)
{
    (void)state;
    resolve_first_to("10.0.0.1");
    assert_false(wri_socket_is_loopback("127.0.0.1"));
    resolve_first_to("127.0.0.2");
    assert_true(wri_socket_is_loopback("127.0.0.1"));
    assert_false(wri_socket_is_loopback("10.0.0.1"));
    resolve_first_to(NULL);
    assert_false(wri_socket_address_is_loopback(&(struct sockaddr){.sa_family = AF_UNIX}));
}

/* One address is enough to listen, and what the system refuses there is said. */
static void what_the_system_refuses_is_said(void **state)
{
    static const struct {
        const char *call;
        int error;
    } rows[] = {{"socket", EMFILE}, {"listen", EADDRINUSE}};
    struct addrinfo *addresses = NULL;
    int port = 0, fd = -1;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        refuse(rows[i].call, 0, 1, rows[i].error);
        assert_int_equal(wri_socket_listen("127.0.0.1", &port, &fd), WRING_E_SYSTEM);
        assert_non_null(strstr(wring_error_message(), strerror(rows[i].error)));
        assert_true(was_refused() && fd == -1);
        resolve_first_to("127.0.0.2");
        refuse(rows[i].call, 0, 1, rows[i].error);
        assert_int_equal(wri_socket_listen("127.0.0.1", &port, &fd), WRING_OK);
        assert_true(was_refused() && port > 0);
        resolve_first_to(NULL);
        close(fd);
        port = 0;
        fd = -1;
    }
    resolve_first_to("127.0.0.2");
    assert_int_equal(wri_socket_listen("127.0.0.1", &port, &fd), WRING_OK); /* the first */
    resolve_first_to(NULL);
    close(fd);
    assert_int_equal(wri_socket_resolve("127.0.0.1", port, &addresses), WRING_OK);
    refuse("socket", 0, 1, EMFILE);
    assert_int_equal(wri_socket_connect(addresses), -1);
    assert_true(was_refused() && errno == EMFILE);
    refuse("connect", 0, 1, ENETUNREACH);
    assert_int_equal(wri_socket_connect(addresses), -1);
    assert_true(was_refused() && errno == ENETUNREACH);
    freeaddrinfo(addresses);
}

static void a_signal_ends_no_transfer(void **state)
{
    int listen_fd, fds[2], port;
    size_t done = 0;
    char byte = 0;
    (void)state;
    join("127.0.0.1", &listen_fd, fds, &port);
    refuse("send", 0, 3, EINTR);
    assert_int_equal(wri_socket_send(fds[0], "x", 1, &done), WRING_OK);
    assert_true(was_refused());
    refuse("recv", 0, 3, EINTR);
    assert_int_equal(wri_socket_recv(fds[1], &byte, 1, &done), WRING_OK);
    assert_true(was_refused() && byte == 'x');
    leave(listen_fd, fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfers_continue_where_they_stopped),
        cmocka_unit_test(a_closed_end_is_told_from_an_error),
        cmocka_unit_test(the_other_side_is_named),
        cmocka_unit_test(loopback_is_told_from_the_rest),
        cmocka_unit_test(of_several_addresses_all_must_be_loopback),
        cmocka_unit_test(what_the_system_refuses_is_said),
        cmocka_unit_test(a_signal_ends_no_transfer),
        cmocka_unit_test(a_refused_connection_shows_in_the_transfer),
    };
    return cmocka_run_group_tests_name("socket", tests, NULL, NULL);
}
