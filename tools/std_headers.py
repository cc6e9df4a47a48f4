"""Maps names of the standard library to their headers, for check_includes.py.

It covers the headers that builds parse once for all files (cmake/precompile.cmake). With those, no
compiler reports a missing #include.
"""

from __future__ import annotations

import re

# Maps each header to patterns of names after "std::". Names that every container header provides
# (move, pair) are left out.
NAMES = {
    "algorithm": (
        r"sort|stable_sort|nth_element|stable_partition|partition|find|find_if|find_if_not|any_of"
        r"|all_of|none_of|fill|fill_n|generate|copy|copy_n|copy_if|equal|count|count_if|replace_if"
        r"|min|max|clamp|minmax|min_element|max_element|upper_bound|lower_bound|equal_range"
        r"|binary_search|transform|reverse|rotate|unique|shuffle|is_sorted|set_difference"
        r"|ranges::\w+"
    ),
    "array": "array|to_array",
    "atomic": r"atomic|atomic_\w+|memory_order\w*",
    "chrono": "chrono",
    "cstddef": "byte|ptrdiff_t|max_align_t|nullptr_t|to_integer",
    "cstring": "memcpy|memcmp|memset|memmove|memchr|strlen|strerror|strstr|strcmp|strchr",
    "deque": "deque",
    "functional": "function|not_fn|bind_front|invoke|plus|ref|cref|reference_wrapper",
    "limits": "numeric_limits",
    "map": "map|multimap",
    "memory": (
        "shared_ptr|unique_ptr|weak_ptr|make_shared|make_unique|make_unique_for_overwrite"
        "|enable_shared_from_this|allocator|destroy_at|construct_at|addressof"
    ),
    "mutex": "mutex|lock_guard|unique_lock|scoped_lock|once_flag|call_once|try_to_lock|defer_lock",
    "optional": "optional|nullopt|make_optional",
    "set": "set|multiset",
    "span": "span|as_bytes|as_writable_bytes|dynamic_extent",
    "string": r"string|to_string|sto(i|l|ll|ul|ull|f|d)|getline",
    "string_view": "string_view",
    "thread": "thread|jthread|this_thread",
    "utility": "exchange|index_sequence|make_index_sequence|in_place|as_const",
    "vector": "vector",
}

# The first header is included by each of the others, by the standard or in all three
# implementations.
BROUGHT_BY = {
    "string": {"filesystem", "fstream", "iostream", "sstream"},
    "string_view": {"string", "filesystem", "fstream", "iostream", "sstream"},
    "utility": {"algorithm", "functional", "map", "memory", "optional", "set", "tuple", "variant"},
}

_USES = re.compile(
    r"\bstd::(?:"
    + "|".join(f"(?P<{header}>{names})" for header, names in NAMES.items())
    + r")\b|(?<![\w:])(?P<cstdint>u?int(?:8|16|32|64|ptr)_t)\b"
)


def used_headers(text: str) -> dict[str, tuple[int, str]]:
    """Returns, for each header, the line and text of the first use of one of its names."""
    found: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        for use in _USES.finditer(line.partition("//")[0]):
            found.setdefault(str(use.lastgroup), (number, use.group()))
    return found
