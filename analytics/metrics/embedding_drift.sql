-- Two orders of one query: the one that was shown, and the one of the shadow index. `met` has, for each skill in both,
-- the depth by which both have it. Rank-biased overlap is the extrapolated form for lists of unequal length (Webber,
-- Moffat & Zobel 2010, equation 32) with p = 0.9; `sums[d + 1]` is Σ p^i ÷ i over the depths i ≤ d.
with depths as materialized (
    select list(total order by depth) as sums
    from (
        select depth, sum(if(depth = 0, 0, pow(0.9, depth) / depth)) over (order by depth) as total
        from range(0, 1001) depths(depth)
    )
),
told as (
    select *, list_transform(candidates, lambda c: c.skill_id) as offered,
        list_filter(shadow_skill_ids, lambda x: x is not null) as shadowed
    from selections
    where shadow_skill_ids is not null and n_candidates > 0 and not randomized
),
lists as (
    select * exclude (offered, shadowed),
        list_filter(offered, lambda x, i: list_position(offered, x) = i)[:1000] as shown,
        list_filter(shadowed, lambda x, i: list_position(shadowed, x) = i)[:1000] as shadow
    from told
),
compared as (
    select *, least(len(shown), len(shadow)) as s, greatest(len(shown), len(shadow)) as l,
        list_transform(
            list_filter(shown, lambda x: list_contains(shadow, x)),
            lambda x: greatest(list_position(shown, x), list_position(shadow, x))
        ) as met
    from lists
),
counted as (
    select *, len(met) as x_l, len(list_filter(met, lambda m: m <= s)) as x_s,
        len(list_filter(met, lambda m: m <= 10)) / least(l, 10) as value
    from compared
)
select c.* exclude (met),
    -- An empty list has nothing in common with any other.
    if(s = 0, 0, (1 - 0.9) / 0.9 * (
        coalesce(list_sum(list_transform(met, lambda m: sums[l + 1] - sums[m])), 0)
        + x_s / s * ((pow(0.9, s + 1) - pow(0.9, l + 1)) / (1 - 0.9) - s * (sums[l + 1] - sums[s + 1]))
    ) + ((x_l - x_s) / l + x_s / s) * pow(0.9, l)) as rbo
from counted c, depths
