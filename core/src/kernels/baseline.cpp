// Any CPU. A whole panel is one "vector", and every lane's fused multiply-add is std::fma, which is correctly
// rounded with or without hardware for it: slow where there is none, but the same bits.
#include <bit>
#include <cmath>
#include <type_traits>

#include "body.hpp"
#include "isa.hpp"

namespace exactmeans {
namespace {

template <class R>
struct Lanes {
    using Real = R;
    using Bits = std::conditional_t<sizeof(R) == 4, std::int32_t, std::int64_t>;
    static constexpr int lanes = int(panel_width<R>);
    static constexpr Size csr_panels = 1;
    struct Mask {
        bool v[lanes];
    };

    R v[lanes];

    static Lanes load(const R* from) {
        return each([&](int l) { return from[l]; });
    }
    static Lanes splat(R x) {
        return each([&](int) { return x; });
    }
    static Lanes splat_bits(Bits x) { return splat(std::bit_cast<R>(x)); }
    void store(R* to) const {
        for (int l = 0; l < lanes; ++l) to[l] = v[l];
    }
    void store_bits(Bits* to) const {
        for (int l = 0; l < lanes; ++l) to[l] = std::bit_cast<Bits>(v[l]);
    }
    static Lanes add(const Lanes& a, const Lanes& b) {
        return each([&](int l) { return a.v[l] + b.v[l]; });
    }
    static Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
        return each([&](int l) { return std::fma(a.v[l], b.v[l], c.v[l]); });
    }
    static Mask less(const Lanes& a, const Lanes& b) {
        Mask m;
        for (int l = 0; l < lanes; ++l) m.v[l] = a.v[l] < b.v[l];
        return m;
    }
    static Lanes select(const Mask& m, const Lanes& a, const Lanes& b) {
        return each([&](int l) { return m.v[l] ? a.v[l] : b.v[l]; });
    }
    static Lanes min(const Lanes& a, const Lanes& b) { return select(less(b, a), b, a); }
    static Lanes max(const Lanes& a, const Lanes& b) { return select(less(a, b), b, a); }

  private:
    template <class Fn>
    static Lanes each(Fn fn) {
        Lanes out;
        for (int l = 0; l < lanes; ++l) out.v[l] = fn(l);
        return out;
    }
};

constexpr Kernels<float> singles = table<Lanes<float>>("baseline");
constexpr Kernels<double> doubles = table<Lanes<double>>("baseline");

}  // namespace

const Isa isa_baseline = {"baseline", singles, doubles};

}  // namespace exactmeans
