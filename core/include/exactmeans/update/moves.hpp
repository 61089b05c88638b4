// The rows that join or leave a cluster, sorted by cluster and cut into pieces of parallel work.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

struct Moves {
    struct Piece {
        Size centre, begin, end;
        bool shared;  // other pieces have the same centre
    };

    std::vector<Size> rows;   // 2 * row + (1 if it leaves), by centre
    std::vector<Size> start;  // centre j has rows[start[j], start[j + 1])

    // The moves from `summed` (-1: in no cluster) to `labels` (null: all rows go to cluster 0).
    // Sets `summed` to `labels`. Throws if a label is out of range.
    Moves(Size n, Size k, const std::int32_t* labels, std::int32_t* summed)
        : start(std::size_t(k + 2)) {
        const auto label = [&](Size i) { return labels ? labels[i] : 0; };
        const std::vector<Size> changed = changed_rows(n, labels, summed);
        for (const Size i : changed)
            if (label(i) < 0 || label(i) >= k || summed[i] < -1 || summed[i] >= k)
                throw std::invalid_argument("a label is out of range");
        // Counting sort: counts are two places ahead, so that filling leaves start[j] at the first
        // row of centre j.
        for (const Size i : changed) {
            if (summed[i] >= 0) ++start[std::size_t(summed[i]) + 2];
            ++start[std::size_t(label(i)) + 2];
        }
        for (std::size_t j = 2; j < start.size(); ++j) start[j] += start[j - 1];
        rows.resize(std::size_t(start.back()));
        for (const Size i : changed) {
            if (summed[i] >= 0) rows[std::size_t(start[std::size_t(summed[i]) + 1]++)] = 2 * i + 1;
            rows[std::size_t(start[std::size_t(label(i)) + 1]++)] = 2 * i;
            summed[i] = label(i);
        }
    }

    Size count() const { return Size(rows.size()); }

    // Pieces of at most `longest` rows, the longest first.
    std::vector<Piece> pieces(Size longest) const {
        std::vector<Piece> out;
        for (Size j = 0; j + 2 < Size(start.size()); ++j) {
            const Size begin = start[std::size_t(j)], end = start[std::size_t(j + 1)];
            const bool shared = end - begin > longest;
            for (Size at = begin; at < end; at += longest)
                out.push_back({j, at, std::min(at + longest, end), shared});
        }
        std::sort(out.begin(), out.end(),
                  [](const Piece& a, const Piece& b) { return a.end - a.begin > b.end - b.begin; });
        return out;
    }

private:
    // Most labels do not change, so `batch` labels are compared at a time. Within a batch the loop
    // is branch-free, because the branch would be mispredicted.
    static std::vector<Size> changed_rows(Size n, const std::int32_t* labels,
                                          const std::int32_t* summed) {
        constexpr Size batch = 16;
        std::vector<Size> changed;
        std::size_t count = 0;
        for (Size begin = 0; begin < n; begin += batch) {
            const Size end = std::min(n, begin + batch);
            if (labels && end - begin == batch && same(labels + begin, summed + begin)) continue;
            if (changed.size() < count + batch) changed.resize(2 * count + batch);
            for (Size i = begin; i < end; ++i) {
                const std::int32_t label = labels ? labels[i] : 0;
                changed[count] = i;
                count += (summed[i] != label) | (label < 0);
            }
        }
        changed.resize(count);
        return changed;
    }
    static bool same(const std::int32_t* labels, const std::int32_t* summed) {
        std::int32_t bits = 0;
        for (int l = 0; l < 16; ++l) bits |= (labels[l] ^ summed[l]) | (labels[l] >> 31);
        return bits == 0;
    }
};

}  // namespace exactmeans
