// Deduplication of dense rows. Rows that are equal bit for bit have equal scores and always get the
// same label, so only the first row of each group of duplicates is compared with the centres. A
// hash table finds the groups, once per fit, without copying rows.
#pragma once

#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/data/rows.hpp"

namespace exactmeans {

struct DistinctRows {
    std::vector<std::int32_t> first;  // the first row of each group of duplicates
    std::vector<std::int32_t> group;  // the group of every row

    // Sets the label of every row to that of its group; returns how many labels changed.
    Size copy_labels(const std::int32_t* by_group, std::int32_t* labels,
                     const Threads& threads) const {
        std::vector<Size> changed(static_cast<std::size_t>(threads.n_jobs), 0);
        threads.ranges(Size(group.size()), cost::label_rows_per_task,
                       [&](Size begin, Size end, int worker) {
                           Size changes = 0;
                           for (Size i = begin; i < end; ++i) {
                               const std::int32_t label = by_group[group[std::size_t(i)]];
                               changes += labels[i] != label;
                               labels[i] = label;
                           }
                           changed[std::size_t(worker)] += changes;
                       });
        Size all = 0;
        for (const Size by_worker : changed) all += by_worker;
        return all;
    }
};

template <class R>
class RowDedup {
public:
    explicit RowDedup(const DenseRows<R>& x) : x_(x) {}

    // Returns null unless enough rows are duplicates. A sample of equally spaced rows decides
    // whether all rows are hashed.
    std::unique_ptr<DistinctRows> find(const Threads& threads) const {
        constexpr Size most = std::numeric_limits<std::int32_t>::max();
        if (x_.n < 2 || x_.n > most) return nullptr;
        constexpr Size sample = cost::dedup_sample_rows, share = cost::dedup_sample_share;
        if (x_.n > 2 * sample) {
            const auto sampled = group_rows(sample, x_.n / sample, threads);
            if (share * Size(sampled->first.size()) > (share - 1) * sample) return nullptr;
        }
        auto all = group_rows(x_.n, 1, threads);
        if (cost::dedup_share * Size(all->first.size()) > (cost::dedup_share - 1) * x_.n)
            return nullptr;
        all->first.shrink_to_fit();
        return all;
    }

private:
    // Groups rows 0, step, 2 step, ... Hashes are computed in parallel; one thread fills the hash
    // table in row order, so group numbers do not depend on the number of threads.
    std::unique_ptr<DistinctRows> group_rows(Size count, Size step, const Threads& threads) const {
        std::vector<std::uint64_t> hashes(static_cast<std::size_t>(count));
        threads.ranges(count, cost::read_rows_per_task, [&](Size begin, Size end, int) {
            for (Size t = begin; t < end; ++t) hashes[std::size_t(t)] = hash(t * step);
        });
        const int bits = std::bit_width(std::size_t(2 * count));
        std::vector<std::int32_t> table(std::size_t(1) << bits, -1);
        auto found = std::make_unique<DistinctRows>();
        found->group.resize(std::size_t(count));
        Threads{1, threads.poll}.ranges(
            count, cost::label_rows_per_task, [&](Size begin, Size end, int) {
                for (Size t = begin; t < end; ++t) {
                    const std::uint64_t row_hash = hashes[std::size_t(t)];
                    std::size_t at = row_hash >> (64 - bits);
                    for (; table[at] >= 0; at = (at + 1) & (table.size() - 1)) {
                        const Size candidate = found->first[std::size_t(table[at])];
                        if (hashes[std::size_t(candidate)] == row_hash &&
                            same(candidate * step, t * step))
                            break;
                    }
                    if (table[at] < 0) {
                        table[at] = std::int32_t(found->first.size());
                        found->first.push_back(std::int32_t(t));
                    }
                    found->group[std::size_t(t)] = table[at];
                }
            });
        return found;
    }

    std::uint64_t hash(Size i) const {
        std::uint64_t odd = 0x9e3779b97f4a7c15u, even = 0xc2b2ae3d27d4eb4fu;
        const R* row = x_.row(i);
        Size f = 0;
        for (; f + 1 < x_.d; f += 2) {
            even = mixed(even, row[f * x_.col_stride]);
            odd = mixed(odd, row[(f + 1) * x_.col_stride]);
        }
        if (f < x_.d) even = mixed(even, row[f * x_.col_stride]);
        const std::uint64_t both = (even ^ (odd >> 29) ^ odd) * 0x9e3779b97f4a7c15u;
        return both ^ (both >> 32);
    }
    static std::uint64_t mixed(std::uint64_t state, R value) {
        using Bits = std::conditional_t<sizeof(R) == 4, std::uint32_t, std::uint64_t>;
        state = (state ^ std::bit_cast<Bits>(value)) * 0xff51afd7ed558ccdu;
        return state ^ (state >> 32);
    }

    bool same(Size a, Size b) const {
        const R *one = x_.row(a), *other = x_.row(b);
        if (x_.col_stride == 1) return !std::memcmp(one, other, std::size_t(x_.d) * sizeof(R));
        for (Size f = 0; f < x_.d; ++f)
            if (std::memcmp(one + f * x_.col_stride, other + f * x_.col_stride, sizeof(R)))
                return false;
        return true;
    }

    const DenseRows<R>& x_;
};

}  // namespace exactmeans
