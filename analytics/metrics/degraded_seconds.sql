select * replace (greatest(time, coalesce($start, time)) as time),
    epoch_us(least(ended_at, coalesce($end, ended_at))) / 1e6
        - epoch_us(greatest(time, coalesce($start, time))) / 1e6 as value
from degraded_spells
where ended_at > coalesce($start, time)
