-- Removes a session if it has the expected version or does not exist.
-- KEYS: rows, events. ARGV: the expected version. Returns 1 if the session does not exist any more.
local current = redis.call('HGET', KEYS[1], '=')
if current and current ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
