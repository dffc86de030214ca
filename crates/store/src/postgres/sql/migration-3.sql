-- Used to choose sessions of one principal for eviction. Commands change neither column.
CREATE INDEX session_principal ON session (principal, id);
-- Used to find the principal with the most sessions. Changes when a session opens or closes.
CREATE INDEX tally_open ON tally (open);
