#include "exactmeans/base/buffer_pool.hpp"

#include <utility>
#include <vector>

#include "check.hpp"

using namespace exactmeans;

TEST(returned_buffers_are_reused) {
    BufferPool pool;
    CHECK(pool.take<std::vector<int>>().empty());
    std::vector<int> used(1000, 7);
    const int* const where = used.data();
    pool.give(std::move(used));
    std::vector<int> again = pool.take<std::vector<int>>();
    CHECK(again.data() == where);
    // A second caller gets a new buffer while the first is in use.
    CHECK(pool.take<std::vector<int>>().empty());
}

TEST(buffers_of_another_type_are_dropped) {
    BufferPool pool;
    pool.give(std::vector<int>(1000, 7));
    CHECK(pool.take<std::vector<float>>().empty());
    CHECK(pool.take<std::vector<int>>().empty());  // the pool holds one buffer
}
