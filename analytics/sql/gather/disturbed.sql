-- Days whose settled facts are no longer what they were: the files that left the table held other rows than those older
-- than the watermark in the files that came. A merge of small files keeps them; a replay or a removal does not.
insert into disturbed
with came as (
    select tab, project, date, sum(old_rows) as rows, bit_xor(old_content) as content
    from arrived where old_rows > 0
    group by all
),
went as (
    select tab, project, date, sum(rows) as rows, bit_xor(content) as content from vanished group by all
)
select distinct project, date
from went full join came using (tab, project, date)
where (went.rows, went.content) is distinct from (came.rows, came.content);
