/* SPDX-License-Identifier: Apache-2.0 */
/* At which address other hosts reach this one. */
#ifndef WRI_TRANSPORT_INTERFACE_H
#define WRI_TRANSPORT_INTERFACE_H

#include <stddef.h>

#include <wring/wring.h>

/* Write the numeric address from which this host talks to HOST:PORT. Sends nothing. */
wring_status wri_interface_towards(const char *host, int port, char *address, size_t nbytes);

/* The address of the interface called NAME, or NAME if it is an address of this host; "": of the
 * first interface that is up and not loopback, or loopback if there is none. */
wring_status wri_interface_address(const char *name, char *address, size_t nbytes);

#endif
