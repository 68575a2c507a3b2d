"""Names of the QuixBugs programs and of the HumanEval entry points, lower case, without underscores.

Both sets are public; only the names are here. A corpus function of such a name is dropped unseen,
generic names (``add``, ``solve``) included.
"""

from __future__ import annotations

_QUIXBUGS = """
bitcount breadth_first_search bucketsort depth_first_search detect_cycle find_first_in_sorted
find_in_sorted flatten gcd get_factors hanoi is_valid_parenthesization kheapsort knapsack kth
lcs_length levenshtein lis longest_common_subsequence max_sublist_sum mergesort
minimum_spanning_tree next_palindrome next_permutation pascal possible_change powerset quicksort
reverse_linked_list rpn_eval shortest_path_length shortest_path_lengths shortest_paths
shunting_yard sieve sqrt subsequences to_base topological_ordering wrap
"""

_HUMANEVAL = """
has_close_elements separate_paren_groups truncate_number below_zero mean_absolute_deviation
intersperse parse_nested_parens filter_by_substring sum_product rolling_max make_palindrome
string_xor longest greatest_common_divisor all_prefixes string_sequence
count_distinct_characters parse_music how_many_times sort_numbers find_closest_elements
rescale_to_unit filter_integers strlen largest_divisor factorize remove_duplicates flip_case
concatenate filter_by_prefix get_positive is_prime poly find_zero sort_third unique max_element
fizz_buzz sort_even encode_cyclic decode_cyclic prime_fib triples_sum_to_zero
car_race_collision incr_list pairs_sum_to_zero change_base triangle_area fib4 median
is_palindrome modp encode_shift decode_shift remove_vowels below_threshold add same_chars fib
correct_bracketing monotonic common largest_prime_factor sum_to_n derivative fibfib vowels_count
circular_shift digitSum fruit_distribution pluck search strange_sort_list will_it_fly
smallest_change total_match is_multiply_prime is_simple_power iscube hex_key decimal_to_binary
is_happy numerical_letter_grade prime_length starts_one_ends solve anti_shuffle get_row
sort_array encrypt next_smallest is_bored any_int encode skjkasdkd check_dict_case count_up_to
multiply count_upper closest_integer make_a_pile words_string choose_num rounded_avg
unique_digits by_length even_odd_palindrome count_nums move_one_ball exchange histogram
reverse_delete odd_count minSubArraySum max_fill select_words get_closest_vowel match_parens
maximum solution add_elements get_odd_collatz valid_date split_words is_sorted intersection
prod_signs minPath tri digits is_nested sum_squares check_if_last_char_is_a_letter can_arrange
largest_smallest_integers compare_one is_equal_to_sum_even special_factorial fix_spaces
file_name_check words_in_sentence simplify order_by_points specialFilter get_max_triples bf
sorted_list_sum x_or_y double_the_difference compare Strongest_Extension cycpattern_check
even_odd_count int_to_mini_roman right_angle_triangle find_max eat do_algebra string_to_md5
generate_integers
"""

EXACT = frozenset(name.replace("_", "").lower() for name in (_QUIXBUGS + _HUMANEVAL).split())

#: Parts distinctive enough that any name with them is dropped (``levenshtein_distance``, ``_gcd2``).
CONTAINED = (
    "bitcount",
    "breadthfirst",
    "depthfirst",
    "bucketsort",
    "detectcycle",
    "findfirstinsorted",
    "hanoi",
    "gcd",
    "parenthes",
    "bracketing",
    "heapsort",
    "knapsack",
    "lcs",
    "levenshtein",
    "commonsubsequence",
    "sublistsum",
    "subarray",
    "mergesort",
    "spanningtree",
    "kruskal",
    "palindrome",
    "nextperm",
    "pascaltri",
    "powerset",
    "quicksort",
    "reverselinked",
    "rpneval",
    "shortestpath",
    "shuntingyard",
    "sieve",
    "subsequences",
    "tobase",
    "topological",
    "fizzbuzz",
    "fibonacci",
    "isprime",
    "vowel",
    "collatz",
    "closeelements",
    "getfactors",
    "primefactor",
    "binarysearch",
    "changemak",
)
