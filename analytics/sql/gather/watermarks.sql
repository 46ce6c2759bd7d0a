-- Up to where each table's days go, with what has arrived.
select tab, project, date::varchar, max(seq), max(received_us)
from (
    select tab, project, date, seq, received_us from watermarks
    union all
    select tab, project, date, coalesce(seq, ''), received_us from arrived
)
group by tab, project, date;
