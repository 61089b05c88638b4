// Which centres moved in an update, and how far: all that algorithms with bounds need to know of
// it.
#pragma once

#include <algorithm>
#include <vector>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

// The farthest that any of some centres moved_by, and that any but that one did.
struct TwoFarthest {
    double first = 0, second = 0;
    Size index = -1;  // of the first

    void add(Size j, double moved_by) {
        if (moved_by > first) {
            second = first;
            first = moved_by;
            index = j;
        } else {
            second = std::max(second, moved_by);
        }
    }
    double of_others(Size j) const { return j == index ? second : first; }
};

// Of one centre: the square of how far it moved_by, and its own afterwards.
struct Displacement {
    double step2, norm2;
};

struct Movement {
    std::vector<double>
        distance;    // per centre, rounded up, on the frame's scale; 0 exactly if it did not move
    Size moved = 0;  // how many did
    double shift2 =
        0;  // sum of the masters' squared distances, likewise scaled; for the stopping rule
    TwoFarthest farthest;

    // Counts centre j, whose distance is known, in.
    void add(Size j, double master2) {
        const double moved_by = distance[std::size_t(j)];
        moved += moved_by > 0;
        shift2 += master2;
        farthest.add(j, moved_by);
    }
};

// A movement while it is found out, centre by centre.
struct MovementBuilder {
    Movement movement;
    std::vector<double> master2;

    explicit MovementBuilder(Size k) : master2(static_cast<std::size_t>(k)) {
        movement.distance.assign(std::size_t(k), 0.0);
    }
};

}  // namespace exactmeans
