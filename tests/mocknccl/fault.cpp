/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which call or group fails: the environment, read at each of them. */
#include "mocknccl.h"

#include <stdlib.h>
#include <unistd.h>

#include <map>
#include <sstream>

struct counters {
    std::mutex lock;
    std::map<std::string, uint64_t> calls;
    uint64_t groups = 0;
    uint64_t random = 0;
};

/* Never destroyed: streams of a process that exits may still run. */
static counters &the()
{
    static counters *one = new counters;
    return *one;
}

uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, nullptr, 10) : otherwise;
}

static std::vector<std::string> split(const std::string &text, char separator)
{
    std::vector<std::string> parts;
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);)
        parts.push_back(part);
    return parts;
}

static uint64_t number(const std::string &text)
{
    return strtoull(text.c_str(), nullptr, 10);
}

ncclResult_t injected(const char *op)
{
    std::lock_guard<std::mutex> lock(the().lock);
    uint64_t n = ++the().calls[op];
    const char *faults = getenv("MOCKNCCL_FAIL");
    for (const std::string &fault : split(faults ? faults : "", ',')) {
        std::vector<std::string> part = split(fault, ':');
        if (part.size() == 3 && part[0] == op && number(part[1]) == n)
            return last_error((ncclResult_t)number(part[2]), "injected: " + fault);
    }
    return ncclSuccess;
}

/* Next output of splitmix64. */
static uint64_t random_next(uint64_t &state)
{
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

ncclResult_t injected_group(bool &corrupt, uint64_t &delay_us)
{
    std::lock_guard<std::mutex> lock(the().lock);
    if (the().groups++ == 0)
        the().random = setting("MOCKNCCL_SEED", (uint64_t)getpid());
    uint64_t longest = setting("MOCKNCCL_DELAY_US", 0);
    delay_us = longest > 0 ? random_next(the().random) % (longest + 1) : 0;
    corrupt = setting("MOCKNCCL_CORRUPT", 0) == the().groups;
    const char *fault = getenv("MOCKNCCL_ASYNC");
    std::vector<std::string> part = split(fault ? fault : "", ':');
    bool fails = part.size() == 2 && number(part[0]) == the().groups;
    return fails ? (ncclResult_t)number(part[1]) : ncclSuccess;
}
