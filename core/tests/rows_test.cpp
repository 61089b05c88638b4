#include "exactmeans/data/rows.hpp"

#include <limits>

#include "check.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

// Vectors of the exact length, so that AddressSanitizer detects reads past them.
template <class I, class O>
bool check_parts(const std::vector<O>& offsets, const std::vector<I>& indices, Size d) {
    const std::vector<double> data(indices.size(), 1.0);
    CsrRows<double, I> x;
    x.data = data.data();
    x.indices = indices.data();
    if constexpr (sizeof(O) == 4) {
        x.offsets.offsets32 = offsets.data();
    } else {
        x.offsets.offsets64 = offsets.data();
    }
    x.n = Size(offsets.size()) - 1;
    x.d = d;
    return check_csr(x, Size(indices.size()));
}

template <class I, class O>
std::string refusal(const std::vector<O>& offsets, const std::vector<I>& indices, Size d) {
    try {
        check_parts<I, O>(offsets, indices, d);
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "accepted";
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

template <class I, class O>
void check_refusals() {
    constexpr O most = std::numeric_limits<O>::max();
    const auto offsets_refused = [](const std::vector<O>& offsets) {
        CHECK(has(refusal<I, O>(offsets, {0, 1, 2}, 3), "X.indptr"));
    };
    offsets_refused({1, 2, 3});
    offsets_refused({-1, 2, 3});
    offsets_refused({0, 2, 1});
    offsets_refused({0, 2, 1, 3});
    offsets_refused({0, 4});
    offsets_refused({0, 1, 4});
    offsets_refused({0, most, 3});
    offsets_refused({0, 1, -1});
    offsets_refused({0, std::numeric_limits<O>::min(), 3});
    offsets_refused({1});
    const auto index_refused = [](const std::vector<I>& indices) {
        CHECK(has(refusal<I, O>({0, 1, 3}, indices, 3), "X.indices"));
    };
    index_refused({3, 0, 1});
    index_refused({0, 0, 3});
    index_refused({-1, 0, 1});
    index_refused({0, 1, std::numeric_limits<I>::max()});
    index_refused({0, 1, std::numeric_limits<I>::min()});
    CHECK(has(refusal<I, O>({0, 1}, {0}, 0), "X.indices"));
}

template <class I, class O>
void check_acceptances() {
    CHECK(check_parts<I, O>({0}, {}, 0));
    CHECK(check_parts<I, O>({0, 0, 0}, {}, 5));
    CHECK(check_parts<I, O>({0, 2, 2, 3}, {0, 4, 0}, 5));
    // Entries past the last offset belong to no row and are not checked.
    CHECK(check_parts<I, O>({0, 2}, {0, 4, 99}, 5));
    CHECK(!check_parts<I, O>({0, 2}, {1, 0}, 5));
    CHECK(!check_parts<I, O>({0, 1, 3}, {3, 2, 2}, 5));
    CHECK(!check_parts<I, O>({0, 3, 5}, {0, 1, 2, 4, 1}, 5));
    CHECK(check_parts<I, O>({0, 2, 4}, {0, 4, 4, 5}, 6));
    CHECK(check_parts<I, O>({0, 1, 2, 3}, {5, 3, 1}, 6));
    CHECK(!check_parts<I, O>({0, 2, 4}, {0, 4, 5, 5}, 6));
}

// Rows so long and so many that the check takes several blocks.
template <class I, class O>
void check_long() {
    constexpr Size length = 3000, rows = 5, d = 4000;
    std::vector<O> offsets{0};
    std::vector<I> indices;
    for (Size i = 0; i < rows; ++i) {
        for (Size t = 0; t < length; ++t) indices.push_back(I(t + i));
        offsets.push_back(O(indices.size()));
    }
    CHECK((check_parts<I, O>(offsets, indices, d)));
    for (std::size_t at = 1; at < indices.size(); at += 1 + at % 7) {
        const I was = indices[at];
        // The first index of a row may have any value.
        const bool first = Size(at) % length == 0;
        indices[at] = first ? indices[at + 1] : indices[at - 1];
        CHECK(!(check_parts<I, O>(offsets, indices, d)));
        for (const Size bad : {Size(-1), d}) {
            indices[at] = I(bad);
            CHECK(has(refusal<I, O>(offsets, indices, d), "row " + std::to_string(at / length)));
        }
        indices[at] = was;
    }
}

template <class Fn>
void check_tile(const DenseRows<double>& x, const double* shift, const std::vector<Size>& ids,
                Size begin, Fn wanted) {
    DenseTile<double> tile;
    // Reuses a tile that holds other data.
    for (int repeat = 0; repeat < 2; ++repeat) {
        const bool listed = !ids.empty();
        const Size count = listed ? Size(ids.size()) : x.n - begin;
        tile.load(x, shift, begin, listed ? ids.data() : nullptr, count);
        for (Size t = 0; t < count; ++t) {
            const Size i = listed ? ids[t] : begin + t;
            for (Size f = 0; f < x.d; ++f) {
                const double value = wanted(i, f);
                CHECK(same_bits(tile.rows()[t][f], shift ? value - shift[f] : value));
            }
        }
        tile.load(x, shift, 0, nullptr, 1);
    }
}

}  // namespace

TEST(long_csr_is_checked_in_blocks) {
    check_long<std::int32_t, std::int32_t>();
    check_long<std::int64_t, std::int64_t>();
}

TEST(csr_that_would_be_read_out_of_bounds_is_refused) {
    check_refusals<std::int32_t, std::int32_t>();
    check_refusals<std::int32_t, std::int64_t>();
    check_refusals<std::int64_t, std::int32_t>();
    check_refusals<std::int64_t, std::int64_t>();
    // More columns than the index type can represent.
    constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min(),
                           most = std::numeric_limits<std::int32_t>::max();
    for (const Size d : {Size(3'000'000'000), Size(1) << 32, Size(5'000'000'000)}) {
        CHECK((check_parts<std::int32_t, std::int32_t>({0, 2}, {0, most}, d)));
        CHECK(has(refusal<std::int32_t, std::int32_t>({0, 1}, {least}, d), "X.indices"));
        CHECK(has(refusal<std::int32_t, std::int32_t>({0, 2}, {7, -1}, d), "X.indices"));
    }
    // 2^32 is 0 in its lower 32 bits.
    CHECK(
        has(refusal<std::int64_t, std::int64_t>({0, 1}, {std::int64_t(1) << 32}, 3), "X.indices"));
    CHECK(has(refusal<std::int64_t, std::int64_t>({0, std::int64_t(1) << 32}, {0}, 3), "X.indptr"));
}

TEST(refusals_name_the_row) {
    const std::string decreasing = refusal<std::int32_t, std::int32_t>({0, 2, 2, 1}, {0, 1}, 3);
    CHECK(has(decreasing, "row 2"));
    const std::string index = refusal<std::int32_t, std::int32_t>({0, 1, 2}, {0, 7}, 3);
    CHECK(has(index, "row 1") && has(index, "7") && has(index, "3"));
}

TEST(csr_in_bounds_is_accepted_and_its_order_reported) {
    check_acceptances<std::int32_t, std::int32_t>();
    check_acceptances<std::int32_t, std::int64_t>();
    check_acceptances<std::int64_t, std::int32_t>();
    check_acceptances<std::int64_t, std::int64_t>();
}

TEST(csr_rows_are_where_the_offsets_say) {
    Matrix<float> dense(4, 3);
    dense(0, 1) = 5;
    dense(2, 0) = 6;
    dense(2, 2) = 7;
    const Csr<float, std::int32_t> sparse(dense);
    const auto x = sparse.rows();
    CHECK_EQ(x.nonzeros(), 3);
    CHECK_EQ(x.row(1).nonzeros, 0);
    CHECK_EQ(x.row(2).nonzeros, 2);
    CHECK_EQ(x.row(2).index[1], 2);
    CHECK_EQ(x.row(2).value[0], 6.0F);
    CHECK_EQ(x.weight(2), 1.0);
    const std::vector<std::int32_t> offsets32(sparse.offsets.begin(), sparse.offsets.end());
    auto same = x;
    same.offsets = {offsets32.data(), nullptr};
    for (Size i = 0; i < 4; ++i) CHECK(same.row(i).value == x.row(i).value);
    CHECK_EQ(row_count(AnyRows(x)), 4);
    CHECK_EQ(column_count(AnyRows(x)), 3);
}

TEST(contiguous_rows_are_not_copied) {
    Random random(1);
    const Matrix<double> x(9, 5, [&] { return random.normal(); });
    DenseTile<double> tile;
    tile.load(x.rows(), nullptr, 2, nullptr, 7);
    for (Size t = 0; t < 7; ++t) CHECK(tile.rows()[t] == x.row(2 + t));
    const std::vector<Size> ids{8, 0, 0, 3};
    tile.load(x.rows(), nullptr, 0, ids.data(), 4);
    for (Size t = 0; t < 4; ++t) CHECK(tile.rows()[t] == x.row(ids[t]));
    // Columns dropped on the right: rows are still contiguous.
    tile.load({x.values.data(), 9, 3, 5, 1, nullptr}, nullptr, 0, nullptr, 9);
    CHECK(tile.rows()[8] == x.row(8));
}

TEST(tiles_of_any_strides_ids_and_shift) {
    Random random(2);
    constexpr Size n = 11, d = 7;
    const Matrix<double> values(n, d, [&] { return random.normal(); });
    const auto wanted = [&](Size i, Size f) { return values(i, f); };
    std::vector<double> fortran(n * d), spaced(3 * n * 2 * d, -99.0), backwards(n * d);
    for (Size i = 0; i < n; ++i) {
        for (Size f = 0; f < d; ++f) {
            fortran[std::size_t(f * n + i)] = values(i, f);
            spaced[std::size_t(3 * i * 2 * d + 2 * f)] = values(i, f);
            backwards[std::size_t((n - 1 - i) * d + (d - 1 - f))] = values(i, f);
        }
    }
    const std::vector<double> shift(values.row(4), values.row(5));
    const DenseRows<double> layouts[] = {
        values.rows(),
        {fortran.data(), n, d, 1, n, nullptr},
        {spaced.data(), n, d, 6 * d, 2, nullptr},
        {backwards.data() + n * d - 1, n, d, -d, -1, nullptr},
    };
    for (const DenseRows<double>& x : layouts) {
        for (const double* minus : {static_cast<const double*>(nullptr), shift.data()}) {
            check_tile(x, minus, {}, 0, wanted);
            check_tile(x, minus, {}, 3, wanted);
            check_tile(x, minus, {10, 0, 4, 4, 1}, 0, wanted);
            for (Size i = 0; i < n; ++i) CHECK_EQ(x.at(i, d - 1), values(i, d - 1));
        }
    }
}

TEST(a_shift_is_subtracted_in_the_rows_own_precision) {
    const std::vector<float> x{16777217.0F, 0.1F}, shift{1.0F, 0.3F};
    DenseTile<float> tile;
    tile.load({x.data(), 1, 2, 2, 1, nullptr}, shift.data(), 0, nullptr, 1);
    CHECK(same_bits(tile.rows()[0][0], x[0] - shift[0]));
    CHECK(same_bits(tile.rows()[0][1], x[1] - shift[1]));
}
