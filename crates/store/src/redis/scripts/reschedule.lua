-- Moves the next sweep of a session, if it is still scheduled for the given time. Each session is
-- swept before half of the time to live is over, so this also keeps the set of the principal's
-- sessions, and adds sessions of releases that had no such set.
-- KEYS: sweep schedule, closed sessions, open sessions of the principal.
-- ARGV: session, the scheduled time, the new time, time to live of the keys.
local at = redis.call('ZSCORE', KEYS[1], ARGV[1])
if at and tonumber(at) == tonumber(ARGV[2]) then redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1]) end
if at and redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 0 then
  redis.call('SADD', KEYS[3], ARGV[1])
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
end
return 1
