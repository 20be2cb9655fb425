/* SPDX-License-Identifier: Apache-2.0 */
/* A started collective, as its caller sees it. Contracts as of wring_request_test and _wait. */
#ifndef WRI_COLLECTIVE_REQUEST_H
#define WRI_COLLECTIVE_REQUEST_H

#include <wring/wring.h>

wring_status wri_request_test(wring_request *request);
wring_status wri_request_wait(wring_request *request, wring_result *result_out);

#endif
