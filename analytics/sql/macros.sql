-- How facts about one thing become one value: a value beats null, the longer beats the shorter, ties go to the
-- smaller hash. The order of arrival cannot matter. Length and hash in one number: a pair took four times as long.
create macro fold_order(length, text) as (-length)::hugeint * 18446744073709551616 + hash(text);
create macro fold(x) as arg_min(x, fold_order(length(x::varchar), x::varchar));
create macro fold_list(x) as arg_min(x, (-len(x), fold_order(length(x::varchar), x::varchar)));

-- Event time: one that was told beats the time of receipt, then the earliest.
create macro fold_time(x, is_receipt) as arg_min(x, (coalesce(is_receipt, false), x));

-- The hour of a time, which groups many rows quickly: no calendar is asked.
create macro hour_of(time) as to_timestamp(floor(epoch_us(time) / 3600000000.0) * 3600);

-- A name without case and separators: `getWeather`, `get_weather` and `get-weather` are equal.
create macro folded_name(x) as lower(regexp_replace(x, '[\s_\-./:]+', '', 'g'));

-- Damerau-Levenshtein distance within 2 and within a quarter of the called name's length.
create macro is_typo(called, known) as
    abs(length(called) - length(known)) <= least(2, length(called) // 4)
    and damerau_levenshtein(called, known) <= least(2, length(called) // 4);

-- 95 % Wilson score interval of k successes in n trials (Wilson 1927); null where n is 0.
create macro wilson_low(k, n) as case when n > 0 and k = 0 then 0.0 when n > 0 then greatest(0.0,
    (k / n + 1.9207294103470967 / n - 1.959963984540054 * sqrt(k / n * (1 - k / n) / n + 0.9603647051735484 / (n * n)))
    / (1 + 3.8414588206941934 / n)) end;
create macro wilson_high(k, n) as case when n > 0 and k = n then 1.0 when n > 0 then least(1.0,
    (k / n + 1.9207294103470967 / n + 1.959963984540054 * sqrt(k / n * (1 - k / n) / n + 0.9603647051735484 / (n * n)))
    / (1 + 3.8414588206941934 / n)) end;

-- A label names other skills than were picked; not where there is none. Labels are joined when it is asked for: they
-- come without events, and what their names mean may change. Few selections have one: what was picked is only looked at
-- for these.
create macro label_disagrees(picked, expected) as if(
    expected is null, false, coalesce(not list_has_any(list_transform(picked, lambda p: p.skill_id), expected), false)
);
