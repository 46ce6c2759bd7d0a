-- Degraded for more than 3 probes, 90 s, without `recovered`. A spell belongs to the moment when that is decided.
select * replace (least(time + interval 90 seconds, ended_at) as time),
    hour_of(least(time + interval 90 seconds, ended_at)) as hour,
    if(epoch_us(ended_at) - epoch_us(time) > 90e6, 1, 0) as value
from degraded_spells
