-- Counts a session and adds it to the sweep schedule, unless a limit is reached.
-- KEYS: sweep schedule, closed sessions, principals by open sessions, open sessions of the
-- principal.
-- ARGV: session, principal, time of the first sweep, limit on all open sessions, limit on those of
-- the principal, time to live of the keys.
-- Returns 1 if the session is admitted, 2 if it is counted already, 3 if the limit on all sessions
-- is reached, 4 if the limit of the principal is reached.
if redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 2 end
if redis.call('ZCARD', KEYS[1]) - redis.call('SCARD', KEYS[2]) >= tonumber(ARGV[4]) then return 3 end
if tonumber(redis.call('ZSCORE', KEYS[3], ARGV[2]) or '0') >= tonumber(ARGV[5]) then return 4 end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
redis.call('ZINCRBY', KEYS[3], 1, ARGV[2])
redis.call('SADD', KEYS[4], ARGV[1])
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[6]) end
return 1
