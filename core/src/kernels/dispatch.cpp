#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "exactmeans/kernels/dispatch.hpp"
#include "isa.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace exactmeans {
namespace {

#if defined(__x86_64__)
bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
// Reads CPUID itself, because __builtin_cpu_supports of older compilers does not support AVX-VNNI.
bool has_avxvnni() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
bool has_avx512vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

#if defined(__linux__)
// AMX with 8-bit integers, and Linux's permission to use it: the tile registers are large, so Linux
// saves them only for processes that request it.
bool has_amx() {
    static const bool has = [] {
        constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM
        unsigned a = 0, b = 0, c = 0, d = 0;
        if (!has_avx512vnni() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 24 & 3) != 3)
            return false;
        unsigned enabled = 0, high = 0;
        asm volatile("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
        return (enabled >> 17 & 3) == 3 &&
               syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
    }();
    return has;
}

// Measures whether AMX is faster than AVX512-VNNI: on some virtual machines it is not. The choice
// cannot change a result, because both give exact products; this is checked too.
bool amx_is_faster() {
    constexpr Size n = CandidateLists::tile, units = CodedCentres::most_units, depth = 71;
    std::vector<std::int8_t> rows(n * depth * 4 + 64), centres(units * depth * 64 + 64);
    for (std::size_t t = 0; t < rows.size(); ++t) rows[t] = std::int8_t(t * 37 % 255 - 127);
    for (std::size_t t = 0; t < centres.size(); ++t) centres[t] = std::int8_t(t * 101 % 255);
    const std::vector<std::int32_t> start(n, 5);
    const CodeRows coded_rows{rows.data(), depth * 4, n};
    CodedCentres coded;
    coded.codes = centres.data();
    coded.k = units * CodedCentres::unit;
    coded.depth = depth;
    using Clock = std::chrono::steady_clock;
    std::vector<std::int32_t> found[2];
    Clock::duration best[2] = {Clock::duration::max(), Clock::duration::max()};
    const IntegerProducts* const kernels[2] = {&products_amx, &products_avx512vnni};
    for (auto& out : found) out.resize(n * units * CodedCentres::unit);
    for (int round = 0; round < 50; ++round)
        for (int which = 0; which < 2; ++which) {
            const auto begun = Clock::now();
            kernels[which]->products(coded_rows, start.data(), coded, 0, units,
                                     found[which].data());
            best[which] = std::min(best[which], Clock::now() - begun);
        }
    return found[0] == found[1] && best[0] < best[1];
}
#endif
#elif defined(__aarch64__) && defined(__linux__)
bool has_dot_product() { return getauxval(AT_HWCAP) & HWCAP_ASIMDDP; }
#elif defined(__aarch64__)
bool has_dot_product() { return true; }  // all CPUs of macOS and Windows on AArch64
#endif

struct Compiled {
    const Isa* isa;
    bool (*usable)();
};

// Best first.
const Compiled compiled[] = {
#if defined(__x86_64__)
#if defined(__linux__)
    {&isa_amx, has_amx},
#endif
    {&isa_avx512vnni, has_avx512vnni},
    {&isa_avx512, [] { return has_avx512(); }},
    {&isa_avxvnni, [] { return has_avxvnni(); }},
    {&isa_avx2, [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }},
#elif defined(__aarch64__)
    {&isa_neondot, [] { return has_dot_product(); }},
    {&isa_neon, [] { return true; }},
#endif
    {&isa_baseline, [] { return true; }},
};

const Isa& choose() {
    const char* wanted = std::getenv("EXACTMEANS_ISA");
    std::string known;
    for (const auto& [isa, usable] : compiled) {
        if (!usable()) continue;
        const bool any = !wanted || !*wanted;
#if defined(__x86_64__) && defined(__linux__)
        if (any && isa == &isa_amx && !amx_is_faster()) continue;
#endif
        if (any || std::string_view(wanted) == isa->name) return *isa;
        known += (known.empty() ? "" : ", ") + std::string(isa->name);
    }
    throw std::invalid_argument("EXACTMEANS_ISA=" + std::string(wanted) +
                                " cannot be used here; choose one of " + known);
}

const Isa& active() {
    static const Isa& isa = choose();
    return isa;
}

}  // namespace

template <>
const ScoreKernels<float>& score_kernels<float>() {
    return active().single_scores;
}
template <>
const ScoreKernels<double>& score_kernels<double>() {
    return active().double_scores;
}
template <>
const VectorKernels<float>& vector_kernels<float>() {
    return active().single_vectors;
}
template <>
const VectorKernels<double>& vector_kernels<double>() {
    return active().double_vectors;
}
const QuantizedKernels& quantized_kernels() { return active().quantized; }
const BoundKernels& bound_kernels() { return active().bounds; }
const SeedKernels& seed_kernels() { return active().seeds; }
const FilterKernels& filter_kernels() { return active().filter; }
const IntegerProducts& integer_products() { return active().products; }

std::vector<std::string> usable_isas() {
    std::vector<std::string> names;
    for (const auto& [isa, usable] : compiled)
        if (usable()) names.emplace_back(isa->name);
    return names;
}

std::string active_isa() { return active().name; }

}  // namespace exactmeans
