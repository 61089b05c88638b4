#include "exactmeans/scan/inter_centre_distances.hpp"

#include <cmath>

#include "check.hpp"
#include "exactmeans/centres/groups.hpp"
#include "exactmeans/centres/single_centres.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

template <class R>
long double distance(const Centres<R>& centroids, Size a, Size b) {
    long double sum = 0;
    for (Size f = 0; f < centroids.d(); ++f) {
        const long double step = (static_cast<long double>(centroids.derived(a, f)) -
                                  static_cast<long double>(centroids.derived(b, f))) *
                                 static_cast<long double>(centroids.frame().scale());
        sum += step * step;
    }
    return std::sqrt(sum);
}

// The nearest centre of group g other than j and copies of others; false if there is none.
template <class Grouping, class R>
bool nearest_in_group(const Grouping& groups, const Centres<R>& centroids, Size j, Size g,
                      long double& out) {
    bool any = false;
    for (Size z = 0; z < centroids.k(); ++z) {
        if (z == j || groups.copy(z) || groups.group(z) != g) continue;
        const long double far = distance(centroids, j, z);
        out = any ? std::min(out, far) : far;
        any = true;
    }
    return any;
}

template <class Grouping, class R>
void check_distances(const Matrix<R>& centres, Frame<R> frame, double unit, double tight) {
    SharedCentres<R> shared(Centres<R>(centres.row(0), centres.n, centres.d, frame, Threads{}));
    const Centres<R>& centroids = shared.centres;
    const auto held = shared.layouts.template get<Grouping>(centroids, true, Threads{});
    const Grouping& groups = *held;
    InterCentreDistances<R> distances(centres.n, padded<float>(groups.count()));
    distances.update(groups, shared, unit, Threads{2});
    std::vector<float> nearest_alone(static_cast<std::size_t>(centres.n));
    nearest_centre_distances(shared, unit, nearest_alone, Threads{2});
    for (Size j = 0; j < centres.n; ++j) {
        long double nearest = 0;
        bool any = false;
        for (Size g = 0; g < groups.count(); ++g) {
            long double far = 0;
            if (!nearest_in_group(groups, centroids, j, g, far)) {
                CHECK(distances.of(j)[g] >= unreachable);
                continue;
            }
            nearest = any ? std::min(nearest, far) : far;
            any = true;
            CHECK(distances.of(j)[g] <= far * unit);
            CHECK(distances.of(j)[g] >= tight * double(far) * unit);
        }
        CHECK(!any || distances.nearest()[j] <= nearest * unit);
        CHECK(!any || nearest_alone[std::size_t(j)] <= nearest * unit);
    }
}

template <class R>
void check_dtype() {
    Random random(21);
    const Matrix<R> apart(40, 5, [&] { return random.normal(); });
    Matrix<R> close(40, 5, [&] { return 1000 + random.normal() * 1e-4; });
    for (Size f = 0; f < 5; ++f) close(7, f) = close(3, f);  // a copy
    Frame<R> shifted;
    shifted.shift.assign(5, R(1000));
    const auto check = [&]<class Grouping>() {
        check_distances<Grouping, R>(apart, {}, 0.25, 0.999);
        check_distances<Grouping, R>(close, {}, 1.0, 0.0);
        check_distances<Grouping, R>(close, shifted, 8.0, sizeof(R) == 8 ? 0.999 : 0.0);
    };
    check.template operator()<Groups<R>>();
    check.template operator()<SingleCentres<R>>();
}

}  // namespace

TEST(bounds_are_never_above_the_distance_of_centres) {
    check_dtype<float>();
    check_dtype<double>();
}
