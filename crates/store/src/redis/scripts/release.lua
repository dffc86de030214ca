-- A session counts no more. If it is gone altogether, it also leaves the agenda and the lists of those who may hold
-- something of it.
-- KEYS: agenda, open sessions, open sessions by principal, lists of sessions by node. ARGV: session, 1 if it is gone.
local principal = redis.call('HGET', KEYS[2], ARGV[1])
if principal then
  redis.call('HDEL', KEYS[2], ARGV[1])
  if redis.call('HINCRBY', KEYS[3], principal, -1) <= 0 then redis.call('HDEL', KEYS[3], principal) end
end
if ARGV[2] == '1' then
  redis.call('ZREM', KEYS[1], ARGV[1])
  for at = 4, #KEYS do redis.call('ZREM', KEYS[at], ARGV[1]) end
end
return 1
