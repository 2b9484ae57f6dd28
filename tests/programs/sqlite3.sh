#!/bin/bash
# sqlite3: a generated database (inserts, indexes, joins, full-text and recursive queries, deletes, vacuum),
# checked by its own integrity_check and byte by byte against the database of the run without preload.
# shellcheck source=preload.sh
. "$(dirname "$0")/preload.sh"
needs sqlite3
export SQLITE_HISTORY=/dev/null

cat >"$scratch/build.sql" <<'SQL'
PRAGMA cache_size = 20000;
CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT, city TEXT);
CREATE TABLE purchase(id INTEGER PRIMARY KEY, customer INTEGER, item TEXT, price INTEGER, note BLOB);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO customer SELECT i, 'customer ' || (i * 7919 % 20011), 'city ' || (i * 31 % 97) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
INSERT INTO purchase SELECT i, 1 + i * 7919 % 20000, 'item ' || (i * 104729 % 1009), i * 48271 % 9973,
	CASE WHEN i % 500 = 0 THEN zeroblob(i % 60000) WHEN i % 7 = 0 THEN hex(i * 2654435761) END FROM n;
COMMIT;
CREATE INDEX purchase_customer ON purchase(customer, price);
CREATE INDEX purchase_item ON purchase(item);
CREATE UNIQUE INDEX customer_name ON customer(name, id);
BEGIN;
UPDATE purchase SET price = price + 1 WHERE item LIKE 'item 1%';
DELETE FROM purchase WHERE id % 5 = 3;
SAVEPOINT undone;
DELETE FROM customer;
ROLLBACK TO undone;
COMMIT;
ANALYZE;
SQL

cat >"$scratch/query.sql" <<'SQL'
SELECT count(*), sum(price), total(length(note)) FROM purchase;
SELECT city, count(DISTINCT customer.id), sum(price), group_concat(DISTINCT substr(item, 1, 6))
	FROM customer JOIN purchase ON purchase.customer = customer.id GROUP BY city ORDER BY 3 DESC LIMIT 20;
SELECT a.item, count(*) FROM purchase a JOIN purchase b ON a.item = b.item AND a.price = b.price AND a.id < b.id
	GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20;
SELECT id, price, rank() OVER (PARTITION BY item ORDER BY price DESC, id) AS place FROM purchase
	ORDER BY place DESC, id LIMIT 20;
SELECT length(json_group_array(json_object('name', name, 'city', city))) FROM customer;
SELECT sum(length(replace(printf('%050d', id), '0', hex(id)))) FROM purchase;
WITH RECURSIVE fib(a, b) AS (SELECT 0, 1 UNION ALL SELECT b, a + b FROM fib WHERE b < 1e15) SELECT max(a) FROM fib;
CREATE VIRTUAL TABLE temp.words USING fts5(body);
INSERT INTO temp.words SELECT name || ' ' || city FROM customer;
SELECT count(*) FROM temp.words WHERE words MATCH 'city AND 13';
SQL

cat >"$scratch/finish.sql" <<'SQL'
VACUUM;
PRAGMA integrity_check;
PRAGMA foreign_key_check;
SELECT count(*) FROM sqlite_schema;
SQL

prove_bound sqlite3 :memory: 'SELECT 1'
in_both build sqlite3 -batch -bail work.db ".read $scratch/build.sql"
in_both query sqlite3 -batch -bail work.db ".read $scratch/query.sql"
in_both finish sqlite3 -batch -bail work.db ".read $scratch/finish.sql"
grep -qx ok "$scratch/preload.finish.out" || fail "integrity_check: $(cat "$scratch/preload.finish.out")"
in_both dump sqlite3 -batch -bail work.db .dump
same_files work.db
