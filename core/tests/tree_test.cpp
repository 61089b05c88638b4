// Splits of nodes and ways of rows: independent of threads and of the other nodes, the same for
// dense and CSR rows of the same values, and consistent with each other.
#include <algorithm>
#include <numeric>
#include <vector>

#include "check.hpp"
#include "exactmeans/numerics/survey.hpp"
#include "exactmeans/seed/random_state.hpp"
#include "exactmeans/tree/balance.hpp"
#include "exactmeans/tree/node_rows.hpp"
#include "exactmeans/tree/route.hpp"
#include "exactmeans/tree/split.hpp"
#include "samples.hpp"

using namespace exactmeans;
using samples::Csr;
using samples::Labels;
using samples::Matrix;

namespace {

struct Result {
    std::vector<NodeSplit<double>> splits;
    std::vector<Labels> labels;
};

Result split(const AnyRows& rows, const std::vector<std::vector<Size>>& nodes,
             const SplitOptions& options, int n_jobs, Size k = 4) {
    std::vector<NodeTask> tasks;
    std::vector<std::int32_t*> out;
    Result result;
    for (const auto& own : nodes) result.labels.emplace_back(own.size());
    for (std::size_t t = 0; t < nodes.size(); ++t) {
        const Size n = Size(nodes[t].size());
        tasks.push_back({nodes[t].data(), n, std::min(k, n), std::uint32_t(t + 7), nullptr});
        out.push_back(result.labels[t].data());
    }
    result.splits = split_nodes<double>(rows, tasks, out, options, Threads{n_jobs});
    return result;
}

// Rows i, i + count, ... for each of `count` nodes.
std::vector<std::vector<Size>> interleaved(Size n, Size count) {
    std::vector<std::vector<Size>> nodes(static_cast<std::size_t>(count));
    for (Size i = 0; i < n; ++i) nodes[std::size_t(i % count)].push_back(i);
    return nodes;
}

Matrix<double> sample(Size n, Size d) {
    samples::Random random(std::uint64_t(n * d));
    return Matrix<double>(n, d, [&] { return random.coin() ? 0.0 : random.normal(); });
}

}  // namespace

TEST(draws_are_those_of_numpy) {
    RandomState random(42);  // np.random.RandomState(42).random_sample(3)
    CHECK_EQ(random.sample(), 0.3745401188473625);
    CHECK_EQ(random.sample(), 0.9507143064099162);
    CHECK_EQ(random.sample(), 0.7319939418114051);
    RandomState again(0);  // np.random.RandomState(0).choice(10, 4, replace=False, p=[0.1] * 10)
    const std::vector<Size> expected{5, 7, 6, 2};
    CHECK(distinct_rows(10, 4, nullptr, 10.0, again) == expected);
}

TEST(gathered_rows_have_the_features_of_the_node) {
    const Matrix<double> dense = sample(30, 12);
    const Csr<double, std::int32_t> csr(dense);
    NodeRows<CsrRows<double, std::int32_t>> buffer(12);
    const std::vector<Size> few{3, 17}, many{0, 1, 2, 3, 4, 5, 6, 7};
    for (const auto& ids : {few, many, few}) {
        const auto own = buffer.gather(csr.rows(), ids.data(), Size(ids.size()));
        CHECK_EQ(own.n, Size(ids.size()));
        CHECK(std::is_sorted(buffer.features().begin(), buffer.features().end()));
        std::vector<Size> seen(12);
        for (Size i = 0; i < own.n; ++i) {
            const auto row = own.row(i);
            for (Size t = 0; t < row.nonzeros; ++t) {
                const Size f = buffer.features()[std::size_t(row.index[t])];
                CHECK_EQ(row.value[t], dense(ids[std::size_t(i)], f));
                seen[std::size_t(f)] = 1;
            }
        }
        CHECK_EQ(Size(buffer.features().size()),
                 std::accumulate(seen.begin(), seen.end(), Size(0)));
    }
}

TEST(splits_depend_on_the_node_alone) {
    const Matrix<double> dense = sample(700, 12);
    const Csr<double, std::int64_t> csr(dense);
    const auto nodes = interleaved(700, 9);
    for (const bool balanced : {false, true}) {
        SplitOptions options;
        options.balanced = balanced;
        for (const AnyRows& rows : {AnyRows(dense.rows()), AnyRows(csr.rows())}) {
            const Result one = split(rows, nodes, options, 1),
                         three = split(rows, nodes, options, 3);
            for (std::size_t t = 0; t < nodes.size(); ++t) {
                const Result alone = split(rows, {nodes[t]}, options, 1);
                CHECK(one.labels[t] == three.labels[t]);
                CHECK(samples::same_bits(one.splits[t].centres, three.splits[t].centres));
                CHECK(samples::same_bits(one.splits[t].inertia, three.splits[t].inertia));
                if (t == 0) CHECK(one.labels[t] == alone.labels[0]);
            }
        }
    }
}

TEST(no_child_is_empty_and_equal_rows_are_one) {
    Matrix<double> dense(40, 2);
    for (Size i = 0; i < 40; ++i) dense(i, 0) = double(i % 3);
    for (const bool balanced : {false, true}) {
        SplitOptions options;
        options.balanced = balanced;
        const Result found = split(dense.rows(), interleaved(40, 1), options, 1, 8);
        CHECK(found.splits[0].children <= 3);
        CHECK(found.splits[0].children >= 2);
        for (Size i = 0; i < 40; ++i)
            CHECK_EQ(found.labels[0][std::size_t(i)], found.labels[0][std::size_t(i % 3)]);
    }
    const Matrix<double> same(10, 2, [] { return 1.0; });
    CHECK_EQ(split(same.rows(), interleaved(10, 1), {}, 1).splits[0].children, Size(1));
}

TEST(balanced_children_have_equal_sizes) {
    const Matrix<double> dense = sample(103, 5);
    SplitOptions options;
    options.balanced = true;
    for (const Size k : {2, 3, 7}) {
        const Result found = split(dense.rows(), interleaved(103, 1), options, 1, k);
        std::vector<Size> size(static_cast<std::size_t>(k));
        for (const std::int32_t label : found.labels[0]) ++size[std::size_t(label)];
        const auto [least, most] = std::minmax_element(size.begin(), size.end());
        CHECK(*most - *least <= 1);
    }
}

// Bisections by gaps, on any number of threads, against the split of the same rows by lloyd.
TEST(bisections_have_the_bits_of_lloyd) {
    const Size n = 20000, d = 7;
    const Matrix<double> dense = sample(n, d);
    const DenseRows<double> x = dense.rows();
    const auto nodes = interleaved(n, 3);
    const std::vector<Size> seeds{11, 500};
    SplitOptions options;
    options.seeding = NodeSeeding::given;
    options.relative = false;
    for (const auto& own : nodes) {
        Labels expected(own.size());
        const NodeTask task{own.data(), Size(own.size()), 2, 0, seeds.data()};
        const auto splits = split_nodes<double>(x, {task}, {expected.data()}, options, Threads{1});
        const NodeSplit<double>& split = splits[0];
        CHECK(split.iterations > 5);
        std::vector<double> first;
        for (const Size seed : seeds)
            for (Size f = 0; f < d; ++f) first.push_back(dense(own[std::size_t(seed)], f));
        for (const int n_jobs : {1, 4}) {
            const Threads threads{n_jobs};
            SharedCentres<double> shared(Centres<double>(first.data(), 2, d, split.frame, threads));
            Bins grid(survey(x, threads).bounds, n);
            grid.set_bins(bins_needed(x, grid, 0, n));
            Sums sums(2, d, grid, Bins({1.0}, n));
            const std::vector<double> origin(static_cast<std::size_t>(d));
            const std::vector<std::int32_t> rows(own.begin(), own.end());
            Labels labels(own.size());
            const BisectResult found = bisect_rows(x, rows, shared, sums, origin.data(),
                                                   options.tol, 300, labels.data(), threads);
            CHECK(found.done);
            CHECK_EQ(found.iterations, split.iterations);
            CHECK(labels == expected);
            CHECK(std::equal(split.centres.begin(), split.centres.end(), shared.centres.master()));
            CHECK_EQ(found.inertia[0], split.inertia[0]);
            CHECK_EQ(found.inertia[1], split.inertia[1]);
        }
    }
}

TEST(rows_take_the_way_of_the_fit) {
    const Matrix<double> dense = sample(500, 12);
    const Csr<double, std::int32_t> csr(dense);
    const auto nodes = interleaved(500, 5);
    for (const bool balanced : {false, true}) {
        SplitOptions options;
        options.balanced = balanced;
        for (const bool sparse : {false, true}) {
            const AnyRows rows = sparse ? AnyRows(csr.rows()) : AnyRows(dense.rows());
            const Result found = split(rows, nodes, options, 2);
            std::vector<double> values;
            std::vector<SparseVector<double>> vectors;
            std::vector<RouteTask<double>> tasks;
            std::vector<Labels> child(nodes.size());
            Size first = 0;
            for (std::size_t t = 0; t < nodes.size(); ++t) {
                const NodeSplit<double>& own = found.splits[t];
                values.insert(values.end(), own.centres.begin(), own.centres.end());
                vectors.insert(vectors.end(), own.sparse_centres.begin(), own.sparse_centres.end());
                child[t].resize(nodes[t].size());
                const double* price = balanced ? own.price.data() : nullptr;
                tasks.push_back({nodes[t].data(), Size(nodes[t].size()), first, own.children,
                                 own.frame, price, 1, child[t].data(), nullptr});
                first += own.children;
            }
            route_rows<double>(rows, {12, values.data(), &vectors}, tasks, Threads{2});
            for (std::size_t t = 0; t < nodes.size(); ++t) CHECK(child[t] == found.labels[t]);
        }
    }
}
