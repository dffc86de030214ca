-- Removes a session if it still has the version that was seen, or is gone already.
-- KEYS: the rows, the events. ARGV: the version seen. Gives 1 if it is gone.
local seen = redis.call('HGET', KEYS[1], '=')
if seen and seen ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
