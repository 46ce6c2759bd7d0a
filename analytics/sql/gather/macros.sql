-- What ties facts to each other, as one number. Null where there is nothing.
create macro scope_of(kind, project, id) as if(id is null, null, hash(kind, project, id));

-- The id of a call by which alone its facts are one.
create macro lone_call(trace_id, session_id, selection_id, call_id) as
    if(trace_id is null and session_id is null and selection_id is null, call_id, null);

-- The log record that brought a row; null where none did.
create macro seq_of(source_request) as nullif(regexp_extract(source_request, '\d{20}$'), '');
