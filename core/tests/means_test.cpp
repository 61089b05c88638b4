#include "exactmeans/update/means.hpp"

#include <cmath>
#include <limits>

#include "check.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

// Twenty rows in four clusters of five, an empty fifth cluster, and their sums.
struct Clusters {
    static constexpr Size n = 20, d = 3, k = 5;
    Matrix<double> x;
    Labels labels, summed;
    Sums sums;
    std::vector<double> origin;

    static Bins grid(const Matrix<double>& x) {
        double bound = 0;
        for (const double v : x.values) bound = std::max(bound, std::fabs(v));
        Bins out({bound}, n);
        out.set_bins(bins_needed(x.rows(), out, 0, n));
        return out;
    }
    explicit Clusters(Random& random)
        : x(n, d, [&] { return random.normal(); }),
          labels(std::size_t(n), 0),
          summed(std::size_t(n), -1),
          sums(k, d, grid(x), Bins({1.0}, n)),
          origin(std::size_t(d), 0.25) {
        for (Size i = 0; i < n; ++i) labels[std::size_t(i)] = std::int32_t(i % 4);
        sums.relabel(x.rows(), labels.data(), summed.data(), Threads{2});
    }
    Centres<double> centroids(const Matrix<double>& centres) const {
        return Centres<double>(centres.values.data(), k, d, {}, Threads{});
    }
};

double explained_by(const Clusters& c, const Matrix<double>& centres) {
    double sum = 0;
    for (Size j = 0; j < c.k; ++j) sum += c.sums.explained(j, centres.row(j), c.origin.data(), 0);
    return sum;
}

}  // namespace

TEST(centres_move_to_the_means_and_empty_ones_to_the_heaviest) {
    Random random(1);
    Clusters c(random);
    const Matrix<double> start(c.k, c.d, [&] { return random.normal(); });
    for (int n_jobs = 1; n_jobs <= 7; ++n_jobs) {
        Centres<double> centroids = c.centroids(start);
        CentreUpdate<double> update(c.k);
        Sums sums = c.sums;
        const Movement movement = update.run(sums, centroids, c.origin.data(), Threads{n_jobs});
        std::vector<double> wanted(std::size_t(c.k * c.d));
        c.sums.average(wanted.data());
        CHECK(std::equal(wanted.begin(), wanted.end(), centroids.master()));
        CHECK_EQ(movement.moved, c.k);
        CHECK_EQ(update.explained(), explained_by(c, start));
        CHECK(std::equal(centroids.master(0), centroids.master(0) + c.d, centroids.master(4)));
    }
}

TEST(only_clusters_whose_rows_changed_move) {
    Random random(2);
    Clusters c(random);
    const Matrix<double> start(c.k, c.d, [&] { return random.normal(); });
    Centres<double> centroids = c.centroids(start);
    CentreUpdate<double> update(c.k);
    update.run(c.sums, centroids, c.origin.data(), Threads{});
    // Row 1 moves from cluster 1 to cluster 2.
    c.labels[1] = 2;
    c.sums.relabel(c.x.rows(), c.labels.data(), c.summed.data(), Threads{});
    const Matrix<double> before(c.k, c.d,
                                [&, t = Size(0)]() mutable { return centroids.master()[t++]; });
    const double explained = explained_by(c, before);
    const Movement movement = update.run(c.sums, centroids, c.origin.data(), Threads{2});
    CHECK_EQ(movement.distance[0], 0.0);
    CHECK(movement.distance[1] > 0);
    CHECK(movement.distance[2] > 0);
    CHECK_EQ(movement.distance[3], 0.0);
    CHECK_EQ(update.explained(), explained);
}

TEST(rows_relocated_after_observe_do_not_change_explained) {
    Random random(3);
    Clusters c(random);
    const Matrix<double> start(c.k, c.d, [&] { return random.normal(); });
    Centres<double> centroids = c.centroids(start);
    CentreUpdate<double> update(c.k);
    const double explained = explained_by(c, start);
    update.observe(c.sums, centroids, c.origin.data());
    c.sums.move(c.x.rows(), 0, 0, -1.0);
    c.sums.move(c.x.rows(), 0, 4, 1.0);
    update.run(c.sums, centroids, c.origin.data(), Threads{});
    CHECK_EQ(update.explained(), explained);
    CHECK(std::equal(centroids.master(4), centroids.master(4) + c.d, c.x.row(0)));
}

namespace {

// Sparse sums and centres must follow dense ones of the same rows, bit for bit, over iterations.
template <class R>
void check_sparse(Random& random, Size n, Size d, Size k, double share, int bins, bool weighted,
                  int n_jobs) {
    std::vector<std::int64_t> offsets{0};
    std::vector<std::int32_t> index;
    std::vector<R> value;
    std::vector<double> weights(std::size_t(n), 1.0);
    for (Size i = 0; i < n; ++i) {
        for (Size f = 0; f < d; ++f) {
            if (random.unit() > share) continue;
            index.push_back(std::int32_t(f));
            // Few distinct values, so that sums cancel; some means underflow.
            value.push_back(R(random.below(9) ? double(random.below(5)) - 2
                                              : double(std::numeric_limits<R>::denorm_min())));
        }
        offsets.push_back(std::int64_t(index.size()));
        if (weighted) weights[std::size_t(i)] = double(random.below(3));
    }
    CsrRows<R, std::int32_t> x;
    x.data = value.data();
    x.indices = index.data();
    x.offsets.offsets64 = offsets.data();
    x.n = n;
    x.d = d;
    x.weights = weighted ? weights.data() : nullptr;
    Bins grid({4.0}, n);
    grid.set_bins(bins);
    Sums dense(k, d, grid, Bins({2.0}, n)), sparse(k, d, grid, Bins({2.0}, n), true);
    Matrix<R> start(k, d, [&] { return random.unit() < share ? random.normal() : 0.0; });
    for (Size f = 0; f < d; ++f) start(0, f) = 0;  // the first one has no features
    Centres<R> centres(start.values.data(), k, d, {}, Threads{n_jobs});
    Centres<R> listed(sparse_of(start), d, {}, Threads{n_jobs});
    CentreUpdate<R> update(k), listed_update(k);
    const std::vector<double> origin(static_cast<std::size_t>(d));
    Labels labels(std::size_t(n), 0), summed(std::size_t(n), -1), listed_summed = summed;
    for (int step = 0; step < 12; ++step) {
        // All rows change, then fewer and fewer, then none; cluster k - 1 is empty at times.
        for (std::int32_t& label : labels)
            if (step < 11 && random.below(1 + step * step) == 0)
                label = std::int32_t(random.below(step % 3 ? k : k - 1));
        dense.relabel(x, labels.data(), summed.data(), Threads{n_jobs});
        sparse.relabel(x, labels.data(), listed_summed.data(), Threads{n_jobs});
        if (step % 4 == 2) {
            update.observe(dense, centres, origin.data());
            listed_update.observe(sparse, listed, nullptr);
            for (Sums* sums : {&dense, &sparse}) sums->move(x, 0, k - 1, 1.0);
        }
        const Movement wanted = update.run(dense, centres, origin.data(), Threads{n_jobs});
        const Movement got = listed_update.run(sparse, listed, nullptr, Threads{n_jobs});
        if (step % 4 == 2)
            for (Sums* sums : {&dense, &sparse}) sums->move(x, 0, k - 1, -1.0);
        CHECK(same_bits(wanted.distance, got.distance));
        CHECK(same_bits(std::vector<double>{wanted.shift2, update.explained()},
                        std::vector<double>{got.shift2, listed_update.explained()}));
        for (Size j = 0; j < k; ++j) {
            CHECK_EQ(centres.norm2(j), listed.norm2(j));
            CHECK_EQ(centres.score_offset()[j], listed.score_offset()[j]);
            CHECK_EQ(centres.moved_in(j) == centres.version(),
                     listed.moved_in(j) == listed.version());
            const SparseVector<R>& own = listed.sparse_master(j);
            CHECK(own.feature == centres.nonzeros(j).feature);
            CHECK(own.value == centres.nonzeros(j).value);
        }
    }
}

}  // namespace

TEST(sparse_centres_equal_dense_ones) {
    Random random(4);
    for (const double share : {0.01, 0.1, 0.6})
        for (int bins = 1; bins <= 3; ++bins)
            for (const bool weighted : {false, true}) {
                check_sparse<float>(random, 200, 300, 5, share, bins, weighted, bins);
                check_sparse<double>(random, 200, 300, 5, share, bins, weighted, bins);
                check_sparse<double>(random, 30, 7, 4, share, bins, weighted, 1);
            }
}

TEST(a_sparse_centre_moves_although_its_squared_step_underflows) {
    const double value[] = {2e-200, 3e-200, 1e-200};
    const std::int32_t index[] = {1, 4, 1};
    const std::int64_t offsets[] = {0, 2, 3};
    CsrRows<double, std::int32_t> x;
    x.data = value;
    x.indices = index;
    x.offsets.offsets64 = offsets;
    x.n = 2;
    x.d = 6;
    Sums sums(1, 6, Bins({4e-200}, 2), Bins({1.0}, 2), true);
    std::vector<SparseVector<double>> start(1);
    start[0].push(1, 1e-200);
    Centres<double> centroids(start, 6, {}, Threads{});
    CentreUpdate<double> update(1);
    std::int32_t summed[] = {-1, -1};
    const std::int32_t labels[] = {0, 0};
    sums.relabel(x, labels, summed, Threads{});
    CHECK(update.run(sums, centroids, nullptr, Threads{}).distance[0] > 0);
    const Size moved_in = centroids.version();
    CHECK_EQ(centroids.moved_in(0), moved_in);
    CHECK_EQ(centroids.sparse_master(0).at(1), 1.5e-200);
    CHECK_EQ(centroids.sparse_master(0).at(4), 1.5e-200);
    // Removing and adding a row changes nothing.
    sums.move(x, 1, 0, -1.0);
    sums.move(x, 1, 0, 1.0);
    CHECK_EQ(update.run(sums, centroids, nullptr, Threads{}).distance[0], 0.0);
    CHECK_EQ(centroids.moved_in(0), moved_in);
}
