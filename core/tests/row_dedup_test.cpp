#include "exactmeans/data/row_dedup.hpp"

#include <algorithm>
#include <map>

#include "check.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

// n rows drawn from `distinct` different ones in random order.
template <class R>
Matrix<R> repeating(Random& random, Size n, Size d, Size distinct) {
    const Matrix<R> base(distinct, d, [&] { return random.normal(); });
    Matrix<R> x(n, d);
    for (Size i = 0; i < n; ++i) {
        const Size source = random.below(distinct);
        for (Size f = 0; f < d; ++f) x(i, f) = base(source, f);
    }
    return x;
}

template <class R>
std::unique_ptr<DistinctRows> find(const DenseRows<R>& rows, int n_jobs = 1) {
    return RowDedup<R>(rows).find(Threads{n_jobs});
}

// Compares with a map of row values, in row order.
template <class R>
void check_groups(const DenseRows<R>& rows, const DistinctRows& found) {
    std::map<std::vector<R>, std::int32_t> seen;
    for (Size i = 0; i < rows.n; ++i) {
        std::vector<R> values;
        for (Size f = 0; f < rows.d; ++f) values.push_back(rows.at(i, f));
        const auto [entry, added] = seen.try_emplace(values, std::int32_t(seen.size()));
        if (added) CHECK_EQ(found.first[std::size_t(entry->second)], i);
        CHECK_EQ(found.group[std::size_t(i)], entry->second);
    }
    CHECK_EQ(found.first.size(), seen.size());
}

template <class R>
void check_layouts() {
    Random random(11);
    for (const Size d : {1, 2, 7, 16}) {
        const Matrix<R> x = repeating<R>(random, 20000, d, 300);
        const DenseRows<R> plain = x.rows();
        const auto found = find(plain, 3);
        CHECK(found != nullptr);
        if (!found) continue;
        check_groups(plain, *found);
        // Every second row, with columns in reverse order.
        DenseRows<R> strided{x.row(0) + d - 1, x.n / 2, d, 2 * d, -1};
        const auto again = find(strided);
        CHECK(again != nullptr);
        if (again) check_groups(strided, *again);
        // The first row of a group is read in place.
        DenseRows<R> picked = plain;
        picked.picks = found->first.data();
        picked.n = Size(found->first.size());
        for (Size j = 0; j < picked.n; ++j)
            CHECK(!std::memcmp(picked.row(j), x.row(found->first[std::size_t(j)]),
                               std::size_t(d) * sizeof(R)));
    }
}

}  // namespace

TEST(duplicates_are_found_in_any_layout) {
    check_layouts<float>();
    check_layouts<double>();
}

TEST(distinct_rows_are_not_deduplicated) {
    Random random(12);
    const Matrix<float> x(20000, 3, [&] { return random.normal(); });
    CHECK(find(x.rows()) == nullptr);
    const Matrix<float> few = repeating<float>(random, 100, 3, 1000);
    CHECK(find(few.rows()) == nullptr);
    const Matrix<float> one(1, 3);
    CHECK(find(one.rows()) == nullptr);
}

TEST(zeros_of_either_sign_are_distinct) {
    Matrix<double> x(8, 1);
    for (Size i = 0; i < x.n; ++i) x(i, 0) = i % 2 ? -0.0 : 0.0;
    const auto found = find(x.rows());
    CHECK(found != nullptr);
    if (found) CHECK_EQ(found->first.size(), 2u);
}

TEST(labels_are_copied_and_changes_counted) {
    Random random(13);
    const Matrix<float> x = repeating<float>(random, 40000, 2, 50);
    const auto found = find(x.rows());
    std::vector<std::int32_t> by_group(found->first.size()), labels(40000, -1);
    for (std::size_t j = 0; j < by_group.size(); ++j) by_group[j] = std::int32_t(j % 7);
    CHECK_EQ(found->copy_labels(by_group.data(), labels.data(), Threads{3}), 40000);
    by_group[4] = 6;
    const Size changed = found->copy_labels(by_group.data(), labels.data(), Threads{3});
    CHECK_EQ(changed, std::count(found->group.begin(), found->group.end(), 4));
    for (std::size_t i = 0; i < labels.size(); ++i)
        CHECK_EQ(labels[i], by_group[std::size_t(found->group[i])]);
}
