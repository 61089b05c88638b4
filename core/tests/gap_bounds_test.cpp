// Bounds of gaps, which follow prices and moving centres, against gaps of canonical scores.
#include "exactmeans/limits/gap_bounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "exactmeans/limits/priced_rows.hpp"

using namespace exactmeans;

namespace {

// Rows and centres of which some move, in float32, where scores round most.
struct Case {
    Size n = 400, d, k;
    std::vector<float> rows, centres;
    std::mt19937 rng;

    Case(unsigned seed, Size features, Size clusters, double length, double centre_length)
        : d(features), k(clusters), rng(seed) {
        std::normal_distribution<double> normal;
        for (Size v = 0; v < n * d; ++v) rows.push_back(float(length * normal(rng)));
        for (Size v = 0; v < k * d; ++v) centres.push_back(float(centre_length * normal(rng)));
    }
    DenseRows<float> x() const { return {rows.data(), n, d, d}; }

    // Gaps of the rows to their labels at these prices; chooses the labels if there are none.
    std::vector<double> gaps(const std::vector<double>& price,
                             std::vector<std::int32_t>& labels) const {
        SharedCentres<float> shared(Centres<float>(centres.data(), k, d, Frame<float>{}, {}));
        constexpr double infinity = std::numeric_limits<double>::infinity();
        const DenseRows<float> all = x();
        const PricedRows<DenseRows<float>> priced(all, shared, price, infinity, false, {});
        PricedScan<DenseRows<float>> scan;
        const bool choose = labels.empty();
        std::vector<double> result;
        for (Size i = 0; i < n; ++i)
            scan.run(priced, &i, 1, [&](Size, const RowCosts& costs) {
                if (choose) labels.push_back(scan.label[0]);
                const std::int32_t own = labels[std::size_t(i)];
                double others = infinity;
                for (Size j = 0; j < k; ++j)
                    if (j != own) others = std::min(others, costs.cost[j]);
                result.push_back(others - costs.cost[own]);
            });
        return result;
    }
};

// Stores all gaps, changes prices and centres several times, and checks that no bound exceeds the
// gap. `step`: how far values of centres move, or with `one` the first value of the first centre;
// `rise`: how far prices do.
void check_bounds(Case own, double step, double rise, int rounds, bool one = false) {
    GapBounds bounds(own.k);
    std::vector<double> price(std::size_t(own.k), 0.0);
    std::vector<std::int32_t> labels;
    std::vector<double> gap = own.gaps(price, labels);
    Centres<float> centroids(own.centres.data(), own.k, own.d, Frame<float>{}, {});
    bounds.follow_centres(centroids);
    const std::vector<float> length = row_lengths(own.x(), Frame<float>{}, {});
    std::vector<float> stored;
    for (std::size_t i = 0; i < gap.size(); ++i)
        stored.push_back(bounds.stored(gap[i], length[i], labels[i]));
    std::normal_distribution<double> normal;
    for (int round = 0; round < rounds; ++round) {
        for (Size j = 0; j < own.k; ++j)
            for (Size f = 0; f < own.d && step > 0 && !(one && j + f > 0); ++f) {
                float& value = own.centres[std::size_t(j * own.d + f)];
                value = float(double(value) + step * normal(own.rng));
            }
        if (step > 0) {
            bounds.moved(centroids.move(own.centres.data(), {}));
            CHECK(bounds.follow_centres(centroids));
        }
        std::vector<double> rises;
        for (double& p : price) {
            const double before = p;
            p += rise * normal(own.rng);
            rises.push_back(p - before);
        }
        bounds.follow_rises(rises);
        gap = own.gaps(price, labels);
        for (std::size_t i = 0; i < gap.size(); ++i)
            for (const double nearly : {gap[i], gap[i] + 1e-12 * std::abs(gap[i])})
                CHECK(!bounds.exceeds(stored[i], length[i], labels[i], nearly));
    }
}

}  // namespace

TEST(bounds_follow_prices) { check_bounds(Case(1, 3, 4, 1.0, 1.0), 0.0, 0.1, 5); }

TEST(bounds_follow_centres_and_offsets) {
    check_bounds(Case(2, 3, 4, 1.0, 1.0), 0.05, 0.0, 5);
    // One centre moves away from the origin, in line with the rows: its offset rises.
    check_bounds(Case(3, 1, 2, 1.0, 1.0), 0.3, 0.0, 3);
}

// One value of a centre moves by less than scores round, by which all partial sums may round
// otherwise: only the terms for rounded scores cover the change. Long rows make products round
// most, long centres the offsets.
TEST(bounds_cover_rounded_products) {
    for (unsigned seed = 0; seed < 40; ++seed) {
        Case own(seed, 300, 3, 1e4, 0.01);
        own.centres[0] = 0;
        check_bounds(own, 2e-10, 0.0, 1, true);
    }
}
TEST(bounds_cover_rounded_offsets) {
    check_bounds(Case(5, 300, 3, 1e-3, 100.0), 3.0, 0.0, 20, true);
}

// Nothing changes: what float32 rounds is all that a stored gap may lose.
TEST(stored_gaps_are_rounded_down) { check_bounds(Case(5, 3, 4, 1.0, 1.0), 0.0, 0.0, 1); }

TEST(unknown_movement_forgets_bounds) {
    Case own(6, 3, 4, 1.0, 1.0);
    GapBounds bounds(own.k);
    const Centres<float> centroids(own.centres.data(), own.k, own.d, Frame<float>{}, {});
    CHECK(!bounds.follow_centres(centroids));
    CHECK(!bounds.follow_centres(centroids));
    CHECK(!bounds.exceeds(GapBounds::unknown, 1.0f, 0, -1e300));
}

// The second of two moves is recorded, the first is not: it may have ended with an exception.
TEST(a_missing_movement_forgets_bounds) {
    Case own(6, 3, 4, 1.0, 1.0);
    GapBounds bounds(own.k);
    Centres<float> centroids(own.centres.data(), own.k, own.d, Frame<float>{}, {});
    bounds.follow_centres(centroids);
    own.centres[0] += 1;
    centroids.move(own.centres.data(), {});
    own.centres[0] += 1;
    bounds.moved(centroids.move(own.centres.data(), {}));
    CHECK(!bounds.follow_centres(centroids));
}
