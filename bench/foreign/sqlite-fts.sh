# a full-text index built, merged and searched
# needs: sqlite3
# run: sqlite3 -batch :memory: '.read work.sql'
cat >work.sql <<'END'
pragma cache_size = 4000;
create virtual table text using fts5(title, body);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 50000)
  insert into text select 'title ' || (i * 7919 % 5003), printf('word%d other%d more%d and%d', i % 701, i % 97, i * 31 % 4001, i % 13) ||
    ' ' || hex(i * 104729) || ' ' || printf('w%d x%d y%d', i % 31, i % 59, i % 83) from n;
insert into text(text) values('optimize');
select count(*) from text where text match 'word7* or and3';
select group_concat(title, ',') from (select title from text where text match 'other5 and9' order by rank, rowid limit 50);
create table pair as select a.rowid r, a.title t, length(a.body) l from text a order by a.body;
select count(*), sum(l) from pair group by t order by 2 desc limit 20;
END
