/* SPDX-License-Identifier: Apache-2.0 */
/* Marks functions that are compiled for the host and, by nvcc, for the device as well. */
#ifndef WRI_BASE_HD_H
#define WRI_BASE_HD_H

#ifdef __CUDACC__
#define WRI_HD __host__ __device__
#else
#define WRI_HD
#endif

#endif
