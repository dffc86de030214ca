-- A session has closed and counts no more. If it is gone altogether, it also leaves the agenda and the lists of those who
-- may hold something of it. Said twice, it changes nothing.
-- KEYS: agenda, closed sessions, open sessions by principal, lists of sessions by node.
-- ARGV: session as the agenda names it, principal, session as nodes name it, 1 if it is gone.
local counts
if ARGV[4] == '1' then
  local was_closed = redis.call('SREM', KEYS[2], ARGV[1]) == 1
  counts = redis.call('ZREM', KEYS[1], ARGV[1]) == 1 and not was_closed
  for at = 4, #KEYS do redis.call('ZREM', KEYS[at], ARGV[3]) end
else
  counts = redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('SADD', KEYS[2], ARGV[1]) == 1
  redis.call('PEXPIRE', KEYS[2], math.max(redis.call('PTTL', KEYS[1]), 1))
end
if counts and redis.call('HINCRBY', KEYS[3], ARGV[2], -1) <= 0 then redis.call('HDEL', KEYS[3], ARGV[2]) end
return 1
