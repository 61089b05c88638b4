#include "exactmeans/assign/sparse/centre_change.hpp"

#include <cmath>

#include "check.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

// now = factor * before + change, up to a remainder of length change.lost.
template <class R>
void check_change(const SparseVector<R>& before, const SparseVector<R>& now) {
    const Change change = change_of(before, now, 1.0);
    CHECK(change.factor > 0.25 && change.factor < 4);
    double lost2 = 0, length2 = 0;
    for (Size f = 0; f < 400; ++f) {
        double step = 0;
        for (std::size_t t = 0; t < change.feature.size(); ++t)
            if (Size(change.feature[t]) == f) step = change.value[t];
        const double remainder = double(now.at(f)) - change.factor * double(before.at(f)) - step;
        lost2 += remainder * remainder;
        length2 += step * step;
    }
    CHECK(std::sqrt(lost2) <= change.lost + 0x1p-50 * change.length);
    CHECK(std::sqrt(length2) <= change.length);
}

template <class R>
SparseVector<R> times(const SparseVector<R>& v, double factor) {
    SparseVector<R> out = v;
    for (R& value : out.value) value = R(double(value) * factor);
    return out;
}

template <class R>
void check_all() {
    Random random(7);
    SparseVector<R> before;
    for (Size f = 0; f < 400; f += 1 + random.below(3)) before.push(f, R(random.normal()));
    SparseVector<R> changed = times(before, 0.9);
    for (std::size_t t = 0; t < changed.value.size(); t += 11)
        changed.value[t] = R(random.normal());
    CHECK(std::fabs(change_of(before, changed, 1.0).factor - 0.9) < 1e-5);
    CHECK(change_of(before, changed, 1.0).feature.size() < changed.feature.size() / 8);
    check_change(before, changed);
    // No common factor: values that change sign, shrink to nothing or are new.
    for (const double factor : {-1.0, -0.9, 0.0, 1e-3, 100.0})
        check_change(before, times(before, factor));
    check_change(SparseVector<R>(), before);
    check_change(before, SparseVector<R>());
    SparseVector<R> others;
    for (Size f = 1; f < 400; f += 7) others.push(f, R(random.normal()));
    check_change(before, others);
}

}  // namespace

TEST(changes_reproduce_the_new_centre) {
    check_all<float>();
    check_all<double>();
}
