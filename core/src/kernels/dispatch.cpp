#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "exactmeans/kernels/dispatch.hpp"
#include "isa.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
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
// AVX-VNNI, which older compilers do not ask the CPU for.
bool has_avxvnni() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
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
    {&isa_avx512vnni, [] { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }},
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
        if (!wanted || !*wanted || std::string_view(wanted) == isa->name) return *isa;
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
