// CSR rows in float32 with 32-bit indices, as the kernels of filters and delta bounds read them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "exactmeans/data/rows.hpp"
#include "exactmeans/kernels/quantized.hpp"
#include "exactmeans/kernels/vectors.hpp"

namespace exactmeans {

// Buffers of one thread. Entries of the right types are used in place, unless they are so near the
// end of the arrays that kernels would read past it.
template <class R>
class Float32Rows {
public:
    // Loads rows [begin, end).
    template <class I>
    void load(const CsrRows<R, I>& x, Size begin, Size end) {
        rows_.clear();
        reserve(x.offsets[end] - x.offsets[begin]);
        Buffer to{index_.data(), value_.data()};
        add(x, begin, end, to);
        to.pad();
    }
    // Loads `count` rows; row t is row_of(t) of x.
    template <class I, class RowOf>
    void load_some(const CsrRows<R, I>& x, Size count, RowOf row_of) {
        rows_.clear();
        Size total = 0;
        for (Size t = 0; t < count; ++t) total += x.row(row_of(t)).nonzeros;
        reserve(total);
        Buffer to{index_.data(), value_.data()};
        for (Size t = 0; t < count; ++t) add(x, row_of(t), row_of(t) + 1, to);
        to.pad();
    }
    // Keeps only these rows, ascending.
    void keep(const std::vector<std::int32_t>& some) {
        for (std::size_t t = 0; t < some.size(); ++t) rows_[t] = rows_[std::size_t(some[t])];
        rows_.resize(some.size());
    }

    Size size() const { return Size(rows_.size()); }
    const PackedCsrRow<float>* data() const { return rows_.data(); }
    const PackedCsrRow<float>& operator[](Size t) const { return rows_[std::size_t(t)]; }

private:
    struct Buffer {
        std::uint32_t* index;
        float* value;
        bool used = false;
        void pad() const {
            if (!used) return;
            std::fill_n(index, readable_past_row, 0u);
            std::fill_n(value, readable_past_row, 0.0f);
        }
    };
    void reserve(Size entries) {
        const std::size_t size = std::size_t(entries + readable_past_row);
        if (index_.size() < size) index_.resize(size);
        if (value_.size() < size) value_.resize(size);
    }
    template <class I>
    void add(const CsrRows<R, I>& x, Size begin, Size end, Buffer& to) {
        const Size from = x.offsets[begin], n = x.offsets[end] - from;
        const bool in_place = x.offsets[x.n] - x.offsets[end] >= readable_past_row;
        PackedCsrRow<float> all{to.index, to.value, n};
        if constexpr (sizeof(I) == sizeof(std::uint32_t)) {
            const void* const given = x.indices + from;
            if (in_place) all.index = static_cast<const std::uint32_t*>(given);
        }
        if constexpr (std::is_same_v<R, float>)
            if (in_place) all.value = x.data + from;
        if (all.index == to.index) {
            to.used = true;
            to.index = std::copy_n(x.indices + from, n, to.index);
        }
        if (all.value == to.value) {
            to.used = true;
            vector_kernels<R>().to_float32(x.data + from, n, to.value);
            to.value += n;
        }
        for (Size i = begin; i < end; ++i) {
            const Size nonzeros = x.offsets[i + 1] - x.offsets[i];
            rows_.push_back({all.index, all.value, nonzeros});
            all.index += nonzeros;
            all.value += nonzeros;
        }
    }

    std::vector<PackedCsrRow<float>> rows_;
    std::vector<std::uint32_t> index_;
    std::vector<float> value_;
};

}  // namespace exactmeans
