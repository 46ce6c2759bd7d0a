-- What ties facts to each other, as one number. Null where there is nothing.
create macro scope_of(kind, project, id) as if(id is null, null, hash(concat_ws(chr(31), kind, project, id)));

-- The log record that brought a row; null where none did.
create macro seq_of(source_request) as nullif(regexp_extract(source_request, '\d{20}$'), '');
