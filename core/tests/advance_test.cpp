#include "exactmeans/advance.hpp"

#include <cmath>

#include "check.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

// Twenty rows in four clusters of five, and sums that stand for them.
struct Clusters {
    static constexpr Size n = 20, d = 3, k = 5;
    Matrix<double> x;
    Labels labels, summed;
    Sums sums;
    std::vector<double> origin;

    static Grid grid(const Matrix<double>& x) {
        double bound = 0;
        for (const double v : x.values) bound = std::max(bound, std::fabs(v));
        Grid out({bound}, n);
        out.set_words(words_needed(x.rows(), out, 0, n));
        return out;
    }
    explicit Clusters(Random& random)
        : x(n, d, [&] { return random.normal(); }),
          labels(std::size_t(n), 0),
          summed(std::size_t(n), -1),
          sums(k, d, grid(x), Grid({1.0}, n)),
          origin(std::size_t(d), 0.25) {
        for (Size i = 0; i < n; ++i) labels[std::size_t(i)] = std::int32_t(i % 4);
        sums.relabel(x.rows(), labels.data(), summed.data(), Threads{2});
    }
    Centroids<double> centroids(const Matrix<double>& centres) const {
        return Centroids<double>(centres.values.data(), k, d, {}, Threads{});
    }
};

double explained_by(const Clusters& c, const Matrix<double>& centres) {
    double sum = 0;
    for (Size j = 0; j < c.k; ++j) sum += c.sums.explained(j, centres.row(j), c.origin.data(), 0);
    return sum;
}

}  // namespace

TEST(centres_go_to_the_means_and_empty_ones_to_the_heaviest) {
    Random random(1);
    Clusters c(random);
    const Matrix<double> start(c.k, c.d, [&] { return random.normal(); });
    for (int n_jobs = 1; n_jobs <= 7; ++n_jobs) {
        Centroids<double> centroids = c.centroids(start);
        Advance<double> advance(c.k);
        Sums sums = c.sums;
        const Movement movement = advance.run(sums, centroids, c.origin.data(), Threads{n_jobs});
        std::vector<double> wanted(std::size_t(c.k * c.d));
        c.sums.average(wanted.data());
        CHECK(std::equal(wanted.begin(), wanted.end(), centroids.master()));
        CHECK_EQ(movement.moved, c.k);
        CHECK_EQ(advance.explained(), explained_by(c, start));
        CHECK(std::equal(centroids.master(0), centroids.master(0) + c.d, centroids.master(4)));
    }
}

TEST(only_clusters_whose_rows_changed_move) {
    Random random(2);
    Clusters c(random);
    const Matrix<double> start(c.k, c.d, [&] { return random.normal(); });
    Centroids<double> centroids = c.centroids(start);
    Advance<double> advance(c.k);
    advance.run(c.sums, centroids, c.origin.data(), Threads{});
    // Row 1 goes from cluster 1 to cluster 2.
    c.labels[1] = 2;
    c.sums.relabel(c.x.rows(), c.labels.data(), c.summed.data(), Threads{});
    const Matrix<double> before(c.k, c.d,
                                [&, t = Size(0)]() mutable { return centroids.master()[t++]; });
    const double explained = explained_by(c, before);
    const Movement movement = advance.run(c.sums, centroids, c.origin.data(), Threads{2});
    CHECK_EQ(movement.distance[0], 0.0);
    CHECK(movement.distance[1] > 0);
    CHECK(movement.distance[2] > 0);
    CHECK_EQ(movement.distance[3], 0.0);
    CHECK_EQ(advance.explained(), explained);
}

TEST(rows_lent_after_observing_do_not_count_as_explained) {
    Random random(3);
    Clusters c(random);
    const Matrix<double> start(c.k, c.d, [&] { return random.normal(); });
    Centroids<double> centroids = c.centroids(start);
    Advance<double> advance(c.k);
    const double explained = explained_by(c, start);
    advance.observe(c.sums, centroids, c.origin.data());
    c.sums.move(c.x.rows(), 0, 0, -1.0);
    c.sums.move(c.x.rows(), 0, 4, 1.0);
    advance.run(c.sums, centroids, c.origin.data(), Threads{});
    CHECK_EQ(advance.explained(), explained);
    CHECK(std::equal(centroids.master(4), centroids.master(4) + c.d, c.x.row(0)));
}
