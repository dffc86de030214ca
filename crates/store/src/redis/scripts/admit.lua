-- Counts a session and puts it on the agenda, unless that would be one too many.
-- KEYS: agenda, closed sessions, open sessions by principal.
-- ARGV: session, principal, when to look at it, how many there may be, how many of the principal, how long to keep this.
-- Gives 1 if it is admitted, 2 if it is listed already, 3 and 4 if there are too many in all or of the principal.
if redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 2 end
if redis.call('ZCARD', KEYS[1]) - redis.call('SCARD', KEYS[2]) >= tonumber(ARGV[4]) then return 3 end
if tonumber(redis.call('HGET', KEYS[3], ARGV[2]) or '0') >= tonumber(ARGV[5]) then return 4 end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
redis.call('HINCRBY', KEYS[3], ARGV[2], 1)
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[6]) end
return 1
