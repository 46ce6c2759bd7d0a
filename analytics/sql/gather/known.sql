-- What the manifest knows; filled from it.
create table watermarks (tab varchar, project varchar, date date, seq varchar, received_us bigint);
create table covered (tab varchar, name varchar);
create table vanished (tab varchar, project varchar, date date, rows bigint, content ubigint);
create table masks (segment uinteger, unit ubigint);
create table settled_offers (project varchar, skill_id varchar, time timestamptz, received_at timestamptz);
create table segment_offers (
    project varchar, skill_id varchar, time timestamptz, received_at timestamptz, time_unit ubigint,
    received_unit ubigint, segment uinteger
);

-- What is found out: units whose rows in the segments no longer hold.
create table touched (segment uinteger, unit ubigint);
create table disturbed (project varchar, date date);
create table arrived (
    tab varchar, name varchar, project varchar, date date, rows bigint, content ubigint, old_rows bigint,
    old_content ubigint, seq varchar, received_us bigint
);
