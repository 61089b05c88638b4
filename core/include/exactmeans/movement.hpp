// Which centres moved in an update, and how far: all that algorithms with bounds need to know of
// it.
#pragma once

#include <algorithm>
#include <vector>

#include "exactmeans/rows.hpp"

namespace exactmeans {

struct Movement {
    std::vector<double>
        distance;    // per centre, rounded up, on the frame's scale; 0 exactly if it did not move
    Size moved = 0;  // how many did
    double shift2 =
        0;  // sum of the masters' squared distances, likewise scaled; for the stopping rule
    double largest = 0, second_largest = 0;
    Size largest_index = 0;

    // Counts centre j, whose distance is known, in.
    void add(Size j, double own2) {
        const double went = distance[std::size_t(j)];
        moved += went > 0;
        shift2 += own2;
        if (went > largest) {
            second_largest = largest;
            largest = went;
            largest_index = j;
        } else {
            second_largest = std::max(second_largest, went);
        }
    }

    // The farthest that any centre but j went.
    double farthest_other(Size j) const { return j == largest_index ? second_largest : largest; }
};

}  // namespace exactmeans
